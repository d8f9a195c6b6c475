/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * foldback's own functions. A program needs none of them: preloading the library is enough.
 *
 * Generated from src/capi.rs by cbindgen; never edit. `make header` renews it.
 */

#ifndef FOLDBACK_H
#define FOLDBACK_H

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Release of foldback, such as "0.1.0". Static; not to be freed.
 */
const char *foldback_version(void);

/*
 Whether collectives on MPI_COMM_WORLD are folded in the kernel: 1 or 0.

 It is 0 before MPI_Init, before enough calls have made a group (FOLDBACK_SETUP_CALLS), after MPI_Finalize, and with
 FOLDBACK=off. It is also 0 where the set-up found a reason to leave the job to MPI (which it logged). The answer is
 the same on all ranks after the same collective call.
 */
int foldback_is_active(void);

/*
 Has sums of floating point on a communicator quantized from now on: `how` is what FOLDBACK_QUANTIZE may
 be, such as "int16,block=64", or "off"; NULL: as the environment says.

 Collective over `comm`. The remainder of earlier sums (`,error_feedback`) is forgotten. MPI_Comm_set_info and
 MPI_Comm_dup_with_info do the same by the key "foldback_quantize".

 Returns 0; or, on all ranks alike, 1 if nothing has changed: `how` is nonsense, or not the same on all
 ranks (a line in the log says so), or `comm` is left to MPI.

 # Safety
 `comm` is a communicator of the program's MPI, `how` a string or NULL.
 */
int foldback_comm_set_quantize(MPI_Comm comm,
                               const char *how);

/*
 Forgets, on this rank, what sums on a communicator have left out so far (`,error_feedback`), as where a
 model is loaded anew.
 */
void foldback_comm_clear_error_feedback(MPI_Comm comm);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FOLDBACK_H */
