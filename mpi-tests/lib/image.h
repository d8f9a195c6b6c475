/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A buffer between guards, and its right contents afterwards, byte by byte. */
#ifndef IMAGE_H
#define IMAGE_H

#include <stdbool.h>
#include <stddef.h>

enum { IMAGE_GUARD = 64 };

struct image {
	unsigned char *base; /* guard, data, guard */
	size_t capacity;
	unsigned char *data;
	size_t bytes; /* of data */
	size_t used;  /* of base */
};

/* Room for `bytes` at `shift` bytes off a cache line; all of it, guards included, is set to the
 * pattern. Old contents of the image are lost. */
void image_prepare(struct image *image, size_t bytes, size_t shift);

/* Makes `copy` the same as `image`, guards included. */
void image_copy(struct image *copy, const struct image *image);

/* The first place where the two differ, as an offset from the data (negative: in the guard before
 * it). False if they do not. */
bool image_differs(const struct image *got, const struct image *want, ptrdiff_t *where);

void image_free(struct image *image);

#endif
