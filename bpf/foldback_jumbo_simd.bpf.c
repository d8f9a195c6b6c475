// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/* The programs of foldback_jumbo.bpf.c, for hosts with the kernel module foldback_simd. */
#define FB_SIMD
#include "foldback_jumbo.bpf.c"
