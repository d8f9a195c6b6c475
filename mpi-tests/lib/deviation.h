/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Where the real MPIs do something else than the standard says. Named here, and nowhere else. All
 * of it was seen with the MPIs of Debian 12. */
#ifndef DEVIATION_H
#define DEVIATION_H

#include "plan.h"

/* What the MPI at hand is known to answer wrongly in this call, or NULL. After MPI_Init. */
const char *deviation_answer(const struct plan *plan);

/* Why the MPI at hand cannot take this call at all, or NULL. */
const char *deviation_break(const struct plan *plan);

#endif
