! SPDX-License-Identifier: MIT OR Apache-2.0
!
! Collectives from Fortran by the module mpi.
program fortran_use
use mpi
implicit none
character(len=*), parameter :: name = 'fortran_use'
#include "lib/fortran_old.inc"
end program

#include "lib/fortran_chain.inc"
