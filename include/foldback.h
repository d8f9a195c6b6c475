/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * foldback's own functions. A program needs none of them: preloading the library is enough.
 *
 * Generated from src/capi.rs by cbindgen; never edit. `make header` renews it.
 */

#ifndef FOLDBACK_H
#define FOLDBACK_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/*
 In place of a number of changed blocks: foldback compares the vector with the one before.
 */
#define FOLDBACK_COMPARE -1

/*
 As root of `foldback_pairs_gather`: all ranks get the pairs.
 */
#define FOLDBACK_EVERY_RANK -1

/*
 The least key first; of strings as memcmp has them, a prefix first.
 */
#define FOLDBACK_BY_KEY 0

/*
 The greatest value first, a NaN before all others; then by key.
 */
#define FOLDBACK_BY_VALUE 1

/*
 The vectors of neighbours as they were last, and their reduction.
 */
typedef struct foldback_neighbor_cache foldback_neighbor_cache;

/*
 Pairs of keys and values, spread over the ranks of a communicator.
 */
typedef struct foldback_pairs foldback_pairs;

/*
 A reduction over neighbours under way: `foldback_wait` or `foldback_test` completes it. It is no MPI_Request.
 */
typedef struct foldback_request foldback_request;

/*
 Calls of a cache on this rank, and the bytes that it has saved.
 */
typedef struct foldback_neighbor_counts {
  /*
   Calls.
   */
  uint64_t reductions;
  /*
   Calls in which no in-neighbour's vector had changed.
   */
  uint64_t reused;
  /*
   Bytes of the vectors, to all out-neighbours.
   */
  uint64_t bytes;
  /*
   Bytes that went to them instead.
   */
  uint64_t bytes_sent;
} foldback_neighbor_counts;

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

/*
 Reduces the vectors of this rank's in-neighbours: `recvbuf` gets `v1 op v2 op ...` in the order in which
 MPI_Neighbor_allgather has them.

 Each rank has one vector, `sendbuf`, for all its out-neighbours. Each of several edges from one rank counts, and
 MPI_PROC_NULL does not. Without in-neighbours `recvbuf` is left alone. `op` and `datatype` may be any that
 MPI_Reduce takes. Sums of float, double and complex numbers of these are exact, and rounded once. `recvbuf` may be
 `sendbuf`; neither may be MPI_IN_PLACE.

 Collective over `comm`, which has a topology (MPI-4.1 section 8.6). Returns a code of MPI's, after the error handler
 of `comm` has seen it.

 # Safety
 Arguments and buffers as MPI wants them.
 */
int foldback_neighbor_reduce(const void *sendbuf,
                             void *recvbuf,
                             int count,
                             MPI_Datatype datatype,
                             MPI_Op op,
                             MPI_Comm comm);

/*
 The same without blocking. The buffers are foldback's until `*request` is complete.

 # Safety
 Arguments and buffers as MPI wants them; room for a request.
 */
int foldback_ineighbor_reduce(const void *sendbuf,
                              void *recvbuf,
                              int count,
                              MPI_Datatype datatype,
                              MPI_Op op,
                              MPI_Comm comm,
                              struct foldback_request **request);

/*
 Makes a cache for reductions of vectors of `count` elements that change little from one call to the next.

 A vector has blocks of `block` elements, the last one perhaps fewer; 0: foldback chooses. A block that has not
 changed is not sent. If no vector has changed that comes to a rank, it gets the reduction that it has kept. For sums
 and exclusive ors of integers a rank keeps two vectors, for all else also one of each in-neighbour. The results are
 the same as of `foldback_neighbor_reduce`, to the bit.

 Collective over `comm`, which is duplicated. All ranks give the same arguments.

 # Safety
 Arguments as MPI wants them; room for a cache.
 */
int foldback_neighbor_cache_create(int count,
                                   MPI_Datatype datatype,
                                   MPI_Op op,
                                   int block,
                                   MPI_Comm comm,
                                   struct foldback_neighbor_cache **cache);

/*
 Reduces as `foldback_neighbor_reduce` does, by a cache.

 The `nchanged` blocks with the numbers in `changed`, from 0, may have changed since the call before; FOLDBACK_COMPARE
 has foldback compare the vector instead. A block that has changed and is not named keeps its old value for the
 neighbours. In the first call all blocks are compared with zeros.

 Collective over the cache's communicator. After an error the cache takes no more calls.

 # Safety
 Buffers for the cache's elements; as many block numbers.
 */
int foldback_neighbor_cache_reduce(struct foldback_neighbor_cache *cache,
                                   const void *sendbuf,
                                   void *recvbuf,
                                   int nchanged,
                                   const int *changed);

/*
 The same without blocking. The buffers are foldback's until `*request` is complete; so is the cache.

 # Safety
 Buffers for the cache's elements; as many block numbers; room for a request.
 */
int foldback_neighbor_cache_ireduce(struct foldback_neighbor_cache *cache,
                                    const void *sendbuf,
                                    void *recvbuf,
                                    int nchanged,
                                    const int *changed,
                                    struct foldback_request **request);

/*
 Gets the calls of a cache on this rank so far, and the bytes that it has saved.

 # Safety
 A cache; room for the counts.
 */
void foldback_neighbor_cache_counts(const struct foldback_neighbor_cache *cache,
                                    struct foldback_neighbor_counts *counts);

/*
 Frees a cache, which becomes NULL. Collective, as MPI_Comm_free. An error if a request is under way.

 # Safety
 A cache.
 */
int foldback_neighbor_cache_free(struct foldback_neighbor_cache **cache);

/*
 Waits until a request is complete, which becomes NULL. NULL is complete. Returns what the blocking function would.

 # Safety
 A request or NULL.
 */
int foldback_wait(struct foldback_request **request);

/*
 Lets a request go on. If it is complete, `*flag` is 1 and the request becomes NULL, else `*flag` is 0.

 # Safety
 A request or NULL; room for an int.
 */
int foldback_test(struct foldback_request **request,
                  int *flag);

/*
 Reduces pairs by key: values of equal keys on all ranks become one, `v1 op v2 op ...`. Each rank gets the pairs whose
 keys foldback has it own. It is create, add and flush in one.

 `op` and `datatype` may be any that MPI_Reduce takes, if `op` is commutative. They live as long as the pairs. Sums of
 float, double and complex numbers of these are exact, and rounded once.

 Collective over `comm`; each rank brings `count` pairs of its own, or none. Returns a code of MPI's, after the error
 handler of `comm` has seen it. On an error all ranks get one, and `*pairs` is NULL.

 # Safety
 Arguments and buffers as MPI wants them; room for the pairs' address.
 */
int foldback_reduce_by_key(const uint64_t *keys,
                           const void *values,
                           int64_t count,
                           MPI_Datatype datatype,
                           MPI_Op op,
                           MPI_Comm comm,
                           struct foldback_pairs **pairs);

/*
 The same with strings as keys. `strings[i]` has `lengths[i]` bytes, of any value, none too. If `lengths` is NULL, each
 string ends with a zero.

 # Safety
 Arguments and buffers as MPI wants them; strings as said; room for the pairs' address.
 */
int foldback_reduce_by_string(const char *const *strings,
                              const size_t *lengths,
                              const void *values,
                              int64_t count,
                              MPI_Datatype datatype,
                              MPI_Op op,
                              MPI_Comm comm,
                              struct foldback_pairs **pairs);

/*
 Makes an object without pairs. Collective over `comm`, which is duplicated. All ranks give the same arguments.

 # Safety
 Arguments as MPI wants them; room for the pairs' address.
 */
int foldback_pairs_create(MPI_Datatype datatype,
                          MPI_Op op,
                          MPI_Comm comm,
                          struct foldback_pairs **pairs);

/*
 Adds pairs on this rank. They are in no share until the next flush. An object takes keys or strings, not both.

 If they have no room (FOLDBACK_PAIRS_MEMORY), none of them is taken, and the code is of class MPI_ERR_NO_MEM.

 # Safety
 Pairs; buffers for as many keys and values.
 */
int foldback_pairs_add(struct foldback_pairs *pairs,
                       const uint64_t *keys,
                       const void *values,
                       int64_t count);

/*
 The same with strings as keys, as `foldback_reduce_by_string` has them.

 # Safety
 Pairs; strings as said; a buffer for as many values.
 */
int foldback_pairs_add_strings(struct foldback_pairs *pairs,
                               const char *const *strings,
                               const size_t *lengths,
                               const void *values,
                               int64_t count);

/*
 Brings all that was added to its owners. Collective.

 If an owner has no room, all ranks get a code of class MPI_ERR_NO_MEM. No pair is lost: what has moved is in its
 owner's share, and the next flush tries again with all else.

 # Safety
 Pairs.
 */
int foldback_pairs_flush(struct foldback_pairs *pairs);

/*
 Gets the number of keys of this rank's share, or of what was gathered here.

 # Safety
 Pairs; room for the count.
 */
int foldback_pairs_count(const struct foldback_pairs *pairs, int64_t *count);

/*
 Gets the keys and the values of this rank's share, in any order; or of what was gathered here, in its order.
 Either pointer may be NULL. A key that stands for a string is a number that foldback gives the string on all ranks.

 # Safety
 Pairs; buffers for as many as `foldback_pairs_count` says.
 */
int foldback_pairs_get(const struct foldback_pairs *pairs,
                       uint64_t *keys,
                       void *values);

/*
 Gets the strings and their lengths in the same order; a zero is behind each. Either pointer may be NULL. The strings
 belong to `pairs`, until the next call that changes or frees it.

 # Safety
 Pairs; room for as many as `foldback_pairs_count` says.
 */
int foldback_pairs_get_strings(const struct foldback_pairs *pairs,
                               const char **strings,
                               size_t *lengths);

/*
 Gathers the `most` first pairs of all shares in an order, FOLDBACK_BY_KEY or FOLDBACK_BY_VALUE, at `root` or at
 FOLDBACK_EVERY_RANK; -1: all pairs. Elsewhere `*gathered` is an object without pairs.

 A gathered object takes count, get, get_strings and free only. Only integers and real numbers are sorted by value.
 Collective; all ranks give the same arguments.

 # Safety
 Pairs; room for the address of those gathered.
 */
int foldback_pairs_gather(struct foldback_pairs *pairs,
                          int64_t most,
                          int order,
                          int root,
                          struct foldback_pairs **gathered);

/*
 Frees pairs, which become NULL. Collective, as MPI_Comm_free; of a gathered object local.

 # Safety
 Pairs.
 */
int foldback_pairs_free(struct foldback_pairs **pairs);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FOLDBACK_H */
