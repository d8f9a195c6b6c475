/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* MPI's names of the persistent collectives here: PERSISTENT_NAME(Bcast), if HAVE_PERSISTENT. */
#ifndef PERSISTENT_H
#define PERSISTENT_H

#include <mpi.h>

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
/* An extension there, which comes with its own header. */
#include <mpi-ext.h>
#endif

#if MPI_VERSION >= 4 || (defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5)
#define HAVE_PERSISTENT 1
#define PERSISTENT_NAME(Name) MPI_##Name##_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define HAVE_PERSISTENT 1
#define PERSISTENT_NAME(Name) MPIX_##Name##_init
#else
#define HAVE_PERSISTENT 0
#endif

#endif
