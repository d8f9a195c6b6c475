/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "image.h"

#include <stdlib.h>
#include <string.h>

enum { PATTERN = 0xa5 };

void image_prepare(struct image *image, size_t bytes, size_t shift)
{
	size_t used = IMAGE_GUARD + shift + bytes + IMAGE_GUARD;

	if (used > image->capacity) {
		free(image->base);
		image->capacity = (used + 4095) / 4096 * 4096;
		image->base = aligned_alloc(64, image->capacity);
		if (!image->base)
			abort();
	}
	image->used = used;
	image->bytes = bytes;
	image->data = image->base + IMAGE_GUARD + shift;
	memset(image->base, PATTERN, used);
}

void image_copy(struct image *copy, const struct image *image)
{
	image_prepare(copy, image->bytes, (size_t)(image->data - image->base) - IMAGE_GUARD);
	memcpy(copy->base, image->base, image->used);
}

bool image_differs(const struct image *got, const struct image *want, ptrdiff_t *where)
{
	size_t i = 0;

	if (!memcmp(got->base, want->base, want->used))
		return false;
	while (got->base[i] == want->base[i])
		i++;
	*where = (ptrdiff_t)i - (want->data - want->base);
	return true;
}

void image_free(struct image *image)
{
	free(image->base);
	*image = (struct image){0};
}
