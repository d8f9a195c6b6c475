/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The deviations of real MPIs from the standard. Named here, and nowhere else. Seen with Open MPI
 * 4.1.4 and 5.0.11, MPICH 4.0.2 and 5.0.2, Intel MPI 2021. */
#ifndef DEVIATION_H
#define DEVIATION_H

#include "call.h"
#include "exchange.h"
#include "plan.h"

/* The known wrong answer of the MPI at hand in this call, or NULL. After MPI_Init. */
const char *deviation_answer(const struct plan *plan);

/* Why the MPI at hand cannot take this call at all, or NULL. */
const char *deviation_break(const struct plan *plan);

/* The same of the calls of call.h. */
const char *deviation_call_answer(const struct call *call);
const char *deviation_call_break(const struct call *call);

/* Whether a communicator freed under a non-blocking collective crashes the MPI at hand. */
bool deviation_free(void);

/* Whether the MPI at hand takes persistent collectives that are not active for complete ones. */
bool deviation_inactive(void);

/* Whether in the MPI at hand MPI_Request_get_status forgets what a persistent receive has brought.
 */
bool deviation_get_status(void);

/* The fault of this MPI in an exchange, or NULL. The same on all ranks of the place. */
const char *deviation_exchange(const struct exchange_call *call, const struct place *place);

/* Whether MPI_Dist_graph_create of the MPI at hand may hang. */
bool deviation_distributed(void);

/* Whether the MPI at hand may fail to make a graph whose ranks may be in another order. */
bool deviation_reorder(void);

#endif
