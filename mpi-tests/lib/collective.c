/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "collective.h"

const struct collective_traits collectives[COLLECTIVES] = {
    [ALLREDUCE] = {"Allreduce", .reduces = true},
    [REDUCE] = {"Reduce", .rooted = true, .reduces = true},
    [BCAST] = {"Bcast", .rooted = true},
    [BARRIER] = {"Barrier"},
    [ALLGATHER] = {"Allgather", .receives_blocks = true},
    [ALLGATHERV] = {"Allgatherv", .receives_blocks = true, .vector = true},
    [GATHER] = {"Gather", .rooted = true, .receives_blocks = true},
    [GATHERV] = {"Gatherv", .rooted = true, .receives_blocks = true, .vector = true},
    [SCATTER] = {"Scatter", .rooted = true, .sends_blocks = true},
    [SCATTERV] = {"Scatterv", .rooted = true, .sends_blocks = true, .vector = true},
    [ALLTOALL] = {"Alltoall", .sends_blocks = true, .receives_blocks = true},
    [ALLTOALLV] = {"Alltoallv", .sends_blocks = true, .receives_blocks = true, .vector = true},
    [REDUCE_SCATTER] = {"Reduce_scatter", .reduces = true, .vector = true},
    [REDUCE_SCATTER_BLOCK] = {"Reduce_scatter_block", .reduces = true},
    [SCAN] = {"Scan", .reduces = true},
    [EXSCAN] = {"Exscan", .reduces = true},
};
