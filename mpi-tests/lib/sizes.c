/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "sizes.h"

#include <stdlib.h>
#include <string.h>

#include "program.h"

int parse_sizes(const char *list, int sizes[MOST_SIZES])
{
	char *text = strdup(list), *save = NULL;
	int n = 0;

	for (char *word = strtok_r(text, ",", &save); word && n < MOST_SIZES;
	     word = strtok_r(NULL, ",", &save)) {
		sizes[n] = atoi(word);
		if (sizes[n] < 4 || sizes[n] % 4)
			fail("--sizes: %s is not a number of whole integers", word);
		n++;
	}
	free(text);
	return n;
}

bool is_listed(const char *list, const char *name)
{
	size_t length = strlen(name);

	if (!strcmp(list, "all"))
		return true;
	for (const char *word = list; word; word = strchr(word, ',')) {
		word += *word == ',';
		if (!strncmp(word, name, length) && (word[length] == ',' || !word[length]))
			return true;
	}
	return false;
}

void check_listed(const char *list, const void *names, int n, unsigned long stride)
{
	char *text = strdup(list), *save = NULL;

	for (char *word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		bool known = !strcmp(word, "all");

		for (int i = 0; i < n && !known; i++)
			known = !strcmp(word, *(const char *const *)((const char *)names +
								     (unsigned long)i * stride));
		if (!known)
			fail("--collective: there is no %s", word);
	}
	free(text);
}

char *buffer(long bytes, int value)
{
	size_t whole = ((size_t)bytes + 63) / 64 * 64;
	char *memory = aligned_alloc(64, whole);

	if (!memory)
		fail("no memory for %ld bytes", bytes);
	memset(memory, value, whole);
	return memory;
}
