// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/* The programs of foldback.bpf.c, for hosts with jumbo frames. */
#define FB_MOST_BYTES FB_JUMBO_BYTES
#include "foldback.bpf.c"
