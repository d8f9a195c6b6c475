/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * foldback's own functions. A program needs none of them: preloading the library is enough.
 *
 * Generated from src/capi.rs by cbindgen; never edit. `make header` renews it.
 */

#ifndef FOLDBACK_H
#define FOLDBACK_H

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Release of foldback, such as "0.1.0". Static; not to be freed.
 */
const char *foldback_version(void);

/*
 Whether collectives on MPI_COMM_WORLD are folded in the kernel: 1 or 0.

 0 before MPI_Init, after MPI_Finalize, with FOLDBACK=off, and wherever the set-up found a reason
 to leave the job to MPI (which it logged). The answer is the same on all ranks.
 */
int foldback_is_active(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FOLDBACK_H */
