/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* foldback's own functions, for programs over which it is preloaded, not linked. */
#ifndef PRELOADED_H
#define PRELOADED_H

#include <dlfcn.h>
#include <mpi.h>
#include <string.h>

#include "foldback.h"
#include "program.h"

/* Finds a function of this name for a pointer, whose address is `function`. */
static inline void find(void *function, const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	if (!found)
		fail("no %s: is foldback preloaded?", name);
	memcpy(function, &found, sizeof(found));
}

static inline void ok(int code, const char *what)
{
	if (code != MPI_SUCCESS)
		fail("%s returned %d", what, code);
}

#endif
