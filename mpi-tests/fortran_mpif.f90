! SPDX-License-Identifier: MIT OR Apache-2.0
!
! Collectives from Fortran by include 'mpif.h'.
program fortran_mpif
implicit none
include 'mpif.h'
character(len=*), parameter :: name = 'fortran_mpif'
#include "lib/fortran_old.inc"
end program

#include "lib/fortran_chain.inc"
