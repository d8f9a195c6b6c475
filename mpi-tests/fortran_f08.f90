! SPDX-License-Identifier: MIT OR Apache-2.0
!
! Collectives from Fortran by the module mpi_f08: typed handles, with and without ierror, and
! sections of arrays with strides.
program fortran_f08
use mpi_f08
#ifdef PERSISTENT_MODULE
use PERSISTENT_MODULE
#endif
implicit none

integer, parameter :: n = 40
integer :: rank, ranks, ierror, i
character(len=16) :: doing

interface
	subroutine chain(in, inout, count, datatype)
		use, intrinsic :: iso_c_binding, only: c_ptr
		use mpi_f08, only: MPI_Datatype
		type(c_ptr), value :: in, inout
		integer :: count
		type(MPI_Datatype) :: datatype
	end subroutine
end interface

doing = 'starting'
ierror = MPI_SUCCESS
call bound()
call MPI_Init()
call MPI_Comm_rank(MPI_COMM_WORLD, rank)
call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
do i = 1, 20
	call reductions(mod(i, ranks))
	call movements(mod(i, ranks))
	call pairs(mod(i, ranks))
	call neighbours()
	call sections(mod(i, ranks))
	call nonblocking(mod(i, ranks))
	call absolute(mod(i, ranks))
	call own_operation(mod(i, ranks))
	call communicators()
	call hints()
	call persistent()
end do
if (rank == 0) print '(a)', 'fortran_f08: all ok'
call MPI_Finalize()

contains

#define COMM type(MPI_Comm)
#define DATATYPE type(MPI_Datatype)
#define REQUEST type(MPI_Request)
#include "lib/fortran_pairs.inc"

! A hang ends by the signal.
subroutine bound()
	use, intrinsic :: iso_c_binding, only: c_int
	integer(c_int) :: before
	interface
		function c_alarm(seconds) bind(c, name='alarm')
			import :: c_int
			integer(c_int), value :: seconds
			integer(c_int) :: c_alarm
		end function
	end interface

	before = c_alarm(300_c_int)
end subroutine

subroutine check(ok, what)
	logical, intent(in) :: ok
	character(len=*), intent(in) :: what

	if (ierror /= MPI_SUCCESS .or. .not. ok) then
		write (0, '(a, i0, 4a)') 'fortran_f08: FAILED: rank ', rank, ': ', doing, ': ', what
		call MPI_Abort(MPI_COMM_WORLD, 1)
	end if
end subroutine

! The sum over all ranks of (rank + 1) * k.
integer function total(k)
	integer, intent(in) :: k

	total = k * ranks * (ranks + 1) / 2
end function

subroutine reductions(root)
	integer, intent(in) :: root
	integer :: mine(n), got(n), k, pair(2), most(2)
	integer(kind=8) :: long, longs
	double precision :: d(n)

	doing = 'reductions'
	mine = [((rank + 1) * k, k = 1, n)]
	got = -1
	call MPI_Allreduce(mine, got, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
	call check(all(got == [(total(k), k = 1, n)]), 'MPI_Allreduce')
	got = mine
	call MPI_Allreduce(MPI_IN_PLACE, got, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
	call check(all(got == [(total(k), k = 1, n)]), 'MPI_Allreduce in place')
	d = mine / 8d0
	call MPI_Allreduce(MPI_IN_PLACE, d, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
	call check(all(d == [(total(k) / 8d0, k = 1, n)]), 'MPI_Allreduce of MPI_DOUBLE_PRECISION')
	long = 4000000000_8 * (rank + 1)
	call MPI_Allreduce(long, longs, 1, MPI_INTEGER8, MPI_MAX, MPI_COMM_WORLD)
	call check(longs == 4000000000_8 * ranks, 'MPI_Allreduce of MPI_INTEGER8')
	pair = [mod(rank * 7 + 3, ranks), rank]
	call MPI_Allreduce(pair, most, 1, MPI_2INTEGER, MPI_MAXLOC, MPI_COMM_WORLD)
	call check(most(1) == mod(most(2) * 7 + 3, ranks), 'MPI_Allreduce of MPI_2INTEGER')
	got = -1
	call MPI_Reduce(mine, got, n, MPI_INTEGER, MPI_MAX, root, MPI_COMM_WORLD)
	if (rank == root) call check(all(got == [(ranks * k, k = 1, n)]), 'MPI_Reduce')
	got = mine
	if (rank == root) then
		call MPI_Reduce(MPI_IN_PLACE, got, n, MPI_INTEGER, MPI_SUM, root, MPI_COMM_WORLD, ierror)
		call check(all(got == [(total(k), k = 1, n)]), 'MPI_Reduce in place')
	else
		call MPI_Reduce(mine, got, n, MPI_INTEGER, MPI_SUM, root, MPI_COMM_WORLD, ierror)
		call check(all(got == mine), 'MPI_Reduce elsewhere')
	end if
	call MPI_Scan(mine, got, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
	call check(all(got == [(k * (rank + 1) * (rank + 2) / 2, k = 1, n)]), 'MPI_Scan')
	call MPI_Exscan(mine, got, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
	if (rank > 0) call check(all(got == [(k * rank * (rank + 1) / 2, k = 1, n)]), 'MPI_Exscan')
end subroutine

subroutine movements(root)
	integer, intent(in) :: root
	integer :: each(2, ranks), mine(2), k, counts(ranks), places(ranks), gaps(ranks * (ranks + 2))
	integer :: many(ranks), one
	real :: r(n)

	doing = 'movements'
	call MPI_Barrier(MPI_COMM_WORLD)
	call MPI_Barrier(MPI_COMM_WORLD, ierror)
	r = -1
	if (rank == root) r = [(k / 2.0, k = 1, n)]
	call MPI_Bcast(r, n, MPI_REAL, root, MPI_COMM_WORLD)
	call check(all(r == [(k / 2.0, k = 1, n)]), 'MPI_Bcast')
	mine = [rank, -rank]
	each = -9
	call MPI_Allgather(mine, 2, MPI_INTEGER, each, 2, MPI_INTEGER, MPI_COMM_WORLD)
	call check(all(each(2, :) == [(-k, k = 0, ranks - 1)]), 'MPI_Allgather')
	each = -9
	call MPI_Gather(mine, 2, MPI_INTEGER, each, 2, MPI_INTEGER, root, MPI_COMM_WORLD, ierror)
	if (rank == root) call check(all(each(1, :) == [(k, k = 0, ranks - 1)]), 'MPI_Gather')
	if (rank == root) each(1, :) = [(5 * k, k = 0, ranks - 1)]
	if (rank == root) each(2, :) = [(6 * k, k = 0, ranks - 1)]
	call MPI_Scatter(each, 2, MPI_INTEGER, mine, 2, MPI_INTEGER, root, MPI_COMM_WORLD)
	call check(all(mine == [5 * rank, 6 * rank]), 'MPI_Scatter')
	each(1, :) = [(100 * rank + k, k = 0, ranks - 1)]
	each(2, :) = 0
	call MPI_Alltoall(MPI_IN_PLACE, 2, MPI_INTEGER, each, 2, MPI_INTEGER, MPI_COMM_WORLD)
	call check(all(each(1, :) == [(100 * k + rank, k = 0, ranks - 1)]), 'MPI_Alltoall')
	counts = [(k, k = 0, ranks - 1)]
	places = [(k * (ranks + 1), k = 0, ranks - 1)]
	many = rank + 50
	gaps = -1
	call MPI_Allgatherv(many, rank, MPI_INTEGER, gaps, counts, places, MPI_INTEGER, &
		MPI_COMM_WORLD)
	do k = 0, ranks - 1
		call check(all(gaps(places(k + 1) + 1:places(k + 1) + k) == k + 50), 'MPI_Allgatherv')
	end do
	call check(count(gaps == -1) == size(gaps) - sum(counts), 'MPI_Allgatherv gaps')
	many = rank + 1
	counts = 1
	call MPI_Reduce_scatter(many, one, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
	call check(one == total(1), 'MPI_Reduce_scatter')
	call MPI_Reduce_scatter_block(many, one, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierror)
	call check(one == ranks, 'MPI_Reduce_scatter_block')
end subroutine

! Every third element, rows and columns of a matrix. Where sections are not copied by the compiler
! but described to MPI (SUBARRAYS), they may also be broadcast without blocking; but MPICH 4.0 makes
! derived datatypes of them, which it then refuses to reduce, and takes the wrong elements of those
! with strides in both dimensions.
subroutine sections(root)
	integer, intent(in) :: root
	integer, asynchronous :: grid(6, 8), sums(6, 8), list(10)
	type(MPI_Request) :: requests(2)
	integer :: k

	doing = 'sections'
	list = -1
	if (rank == root) list(1:10:3) = root + 7
	call MPI_Bcast(list(1:10:3), 4, MPI_INTEGER, root, MPI_COMM_WORLD)
	call check(all(list(1:10:3) == root + 7) .and. count(list == -1) == 6, 'MPI_Bcast')
	grid = -1
	if (rank == root) grid(:, 2:8:3) = root + 9
	call MPI_Bcast(grid(:, 2:8:3), 18, MPI_INTEGER, root, MPI_COMM_WORLD, ierror)
	call check(all(grid(:, 2:8:3) == root + 9) .and. count(grid == -1) == 30, 'MPI_Bcast')
#ifdef SUBARRAYS
	list = -1
	grid = -1
	if (rank == root) list(2:10:4) = root + 8
	if (rank == root) grid(4, :) = [(k + root, k = 1, 8)]
	call MPI_Ibcast(list(2:10:4), 3, MPI_INTEGER, root, MPI_COMM_WORLD, requests(1))
	call MPI_Ibcast(grid(4, :), 8, MPI_INTEGER, root, MPI_COMM_WORLD, requests(2), ierror)
	call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
	call check(all(list(2:10:4) == root + 8) .and. count(list == -1) == 7, 'MPI_Ibcast')
	call check(all(grid(4, :) == [(k + root, k = 1, 8)]) .and. count(grid == -1) == 40, &
		'MPI_Ibcast of a row')
#else
	grid = rank + 1
	sums = -1
	call MPI_Allreduce(grid(3, :), sums(5, :), 8, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
	call check(all(sums(5, :) == total(1)) .and. count(sums == -1) == 40, 'MPI_Allreduce')
	sums = -1
	sums(:, 2:8:3) = reshape([((rank + 1) * k, k = 1, 18)], [6, 3])
	call MPI_Allreduce(MPI_IN_PLACE, sums(:, 2:8:3), 18, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, &
		ierror)
	call check(all(sums(:, 2:8:3) == reshape([(total(k), k = 1, 18)], [6, 3])) .and. &
		count(sums == -1) == 30, 'MPI_Allreduce in place')
#endif
end subroutine

subroutine nonblocking(root)
	integer, intent(in) :: root
	integer, asynchronous :: mine, sums(6), word, each(ranks)
	real, asynchronous :: r(3), rs(3)
	type(MPI_Request) :: requests(8)
	type(MPI_Status) :: status, statuses(8)
	integer :: k, index, done, indices(8), right, left
	logical :: flag

	doing = 'nonblocking'
	mine = rank + 1
	right = mod(rank + 1, ranks)
	left = mod(rank + ranks - 1, ranks)
	r = [(mine * k / 2.0, k = 1, 3)]
	sums = -1

	call MPI_Iallreduce(mine, sums(1), 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(1))
	call MPI_Wait(requests(1), status)
	call check(sums(1) == total(1) .and. requests(1) == MPI_REQUEST_NULL, 'MPI_Wait')

	sums(2) = mine
	call MPI_Iallreduce(MPI_IN_PLACE, sums(2), 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, &
		requests(1), ierror)
	flag = .false.
	do while (.not. flag)
		call MPI_Test(requests(1), flag, MPI_STATUS_IGNORE, ierror)
	end do
	call check(sums(2) == total(1) .and. requests(1) == MPI_REQUEST_NULL, 'MPI_Test')

	sums = -1
	word = -1
	each = -1
	if (rank == root) sums(3) = 33
	call MPI_Iallreduce(r, rs, 3, MPI_REAL, MPI_MAX, MPI_COMM_WORLD, requests(1), ierror)
	call MPI_Irecv(word, 1, MPI_INTEGER, left, 5, MPI_COMM_WORLD, requests(2))
	requests(3) = MPI_REQUEST_NULL
	call MPI_Ibcast(sums(3), 1, MPI_INTEGER, root, MPI_COMM_WORLD, requests(4))
	call MPI_Isend(mine, 1, MPI_INTEGER, right, 5, MPI_COMM_WORLD, requests(5))
	call MPI_Ireduce(mine, sums(4), 1, MPI_INTEGER, MPI_SUM, root, MPI_COMM_WORLD, requests(6))
	call MPI_Ibarrier(MPI_COMM_WORLD, requests(7))
	call MPI_Iallgather(mine, 1, MPI_INTEGER, each, 1, MPI_INTEGER, MPI_COMM_WORLD, &
		requests(8), ierror)
	select case (mod(root + ranks, 4))
	case (0)
		call MPI_Waitall(8, requests, statuses)
		call check(statuses(2)%MPI_SOURCE == left .and. statuses(2)%MPI_TAG == 5, 'statuses')
	case (1)
		call MPI_Waitall(8, requests, MPI_STATUSES_IGNORE, ierror)
	case (2)
		do k = 1, 7
			call MPI_Waitany(8, requests, index, status)
			! From 1 on; MPICH 4.0 says it from 0 on.
			call check(index >= 0 .and. index <= 8, 'MPI_Waitany')
		end do
	case default
		k = 0
		do while (k < 7)
			call MPI_Waitsome(8, requests, done, indices, MPI_STATUSES_IGNORE)
			! As above.
			call check(done >= 1 .and. all(indices(1:done) >= 0) .and. &
				all(indices(1:done) <= 8), 'MPI_Waitsome')
			k = k + done
		end do
	end select
	do k = 1, 8
		call check(requests(k) == MPI_REQUEST_NULL, 'requests')
	end do
	call check(all(rs == [(ranks * k / 2.0, k = 1, 3)]), 'MPI_Iallreduce of MPI_REAL')
	call check(word == left + 1, 'MPI_Irecv')
	call check(sums(3) == 33, 'MPI_Ibcast')
	if (rank == root) call check(sums(4) == total(1), 'MPI_Ireduce')
	call check(all(each == [(k, k = 1, ranks)]), 'MPI_Iallgather')

	flag = .false.
	call MPI_Iscan(mine, sums(5), 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(1))
	call MPI_Iexscan(mine, sums(6), 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(2))
	do while (.not. flag)
		call MPI_Testall(2, requests, flag, MPI_STATUSES_IGNORE)
	end do
	call check(sums(5) == mine * (mine + 1) / 2, 'MPI_Iscan')
	if (rank > 0) call check(sums(6) == rank * (rank + 1) / 2, 'MPI_Iexscan')
end subroutine

! Two variables in one datatype of addresses.
subroutine absolute(root)
	integer, intent(in) :: root
	integer, asynchronous :: one, two(3)
	integer :: lengths(2)
	integer(kind=MPI_ADDRESS_KIND) :: places(2)
	type(MPI_Datatype) :: datatype
	type(MPI_Request) :: request

	doing = 'absolute'
	call MPI_Get_address(one, places(1))
	call MPI_Get_address(two, places(2))
	lengths = [1, 3]
	call MPI_Type_create_hindexed(2, lengths, places, MPI_INTEGER, datatype)
	call MPI_Type_commit(datatype)
	one = -1
	two = -1
	if (rank == root) one = 71
	if (rank == root) two = [72, 73, 74]
	call MPI_Bcast(MPI_BOTTOM, 1, datatype, root, MPI_COMM_WORLD)
	call MPI_Get_address(one, places(1))
	call check(one == 71 .and. all(two == [72, 73, 74]), 'MPI_Bcast of MPI_BOTTOM')
	if (rank == root) one = 81
	call MPI_Ibcast(MPI_BOTTOM, 1, datatype, root, MPI_COMM_WORLD, request, ierror)
	call MPI_Wait(request, MPI_STATUS_IGNORE)
	call MPI_Get_address(one, places(1))
	call check(one == 81 .and. all(two == [72, 73, 74]), 'MPI_Ibcast of MPI_BOTTOM')
	call MPI_Type_free(datatype)
end subroutine

subroutine own_operation(root)
	integer, intent(in) :: root
	integer :: mine(4), got(4), want(4), k, at
	type(MPI_Op) :: operation
	type(MPI_Request) :: request

	doing = 'own operation'
	call MPI_Op_create(chain, .false., operation)
	mine = [rank + 2, rank + 1, 3, rank]
	want = [2, 1, 3, 0]
	do k = 1, ranks - 1
		at = want(1)
		want(2) = (k + 2) * want(2) + k + 1
		want(1) = at * (k + 2)
		want(4) = 3 * want(4) + k
		want(3) = want(3) * 3
	end do
	call MPI_Reduce(mine, got, 4, MPI_INTEGER, operation, root, MPI_COMM_WORLD)
	if (rank == root) call check(all(got == want), 'MPI_Reduce')
	got = mine
	call MPI_Allreduce(MPI_IN_PLACE, got, 4, MPI_INTEGER, operation, MPI_COMM_WORLD, ierror)
	call check(all(got == want), 'MPI_Allreduce')
	call MPI_Iallreduce(mine, got, 4, MPI_INTEGER, operation, MPI_COMM_WORLD, request)
	call MPI_Wait(request, MPI_STATUS_IGNORE)
	call check(all(got == want), 'MPI_Iallreduce')
	call MPI_Op_free(operation)
end subroutine

subroutine communicators()
	type(MPI_Comm) :: duplicate, half
	integer :: value, members, at

	doing = 'communicators'
	call MPI_Comm_dup(MPI_COMM_WORLD, duplicate)
	call MPI_Comm_split(duplicate, mod(rank, 2), -rank, half)
	call MPI_Comm_free(duplicate)
	call MPI_Comm_size(half, members)
	call check(members == (ranks + 1 - mod(rank, 2)) / 2, 'MPI_Comm_split')
	do at = 1, 5
		value = 1
		call MPI_Allreduce(MPI_IN_PLACE, value, 1, MPI_INTEGER, MPI_SUM, half)
		call check(value == members, 'MPI_Allreduce')
	end do
	call MPI_Comm_free(half)
end subroutine

subroutine hints()
	type(MPI_Info) :: info
	type(MPI_Comm) :: duplicate
	real :: mine(50), got(50), want(50)
	integer :: k

	doing = 'hints'
	mine = [(real((rank + 1) * k), k = 1, 50)]
	want = [(real(total(k)), k = 1, 50)]
	call MPI_Info_create(info)
	call MPI_Info_set(info, 'foldback_quantize', 'int16,min=0')
	call MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, duplicate, ierror)
	call MPI_Allreduce(mine, got, 50, MPI_REAL, MPI_SUM, duplicate)
	call check(all(abs(got - want) < 1), 'MPI_Comm_dup_with_info')
	call MPI_Info_set(info, 'foldback_quantize', 'off')
	call MPI_Comm_set_info(duplicate, info)
	call MPI_Allreduce(mine, got, 50, MPI_REAL, MPI_SUM, duplicate)
	call check(all(got == want), 'MPI_Comm_set_info')
	call MPI_Info_free(info)
	call MPI_Comm_free(duplicate)
end subroutine

subroutine persistent()
#ifdef PERSISTENT_ALLREDUCE
	integer, asynchronous :: mine(3), got(3)
	type(MPI_Request) :: requests(2)
	integer :: k, round

	doing = 'persistent'
	call PERSISTENT_ALLREDUCE(mine, got, 3, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, &
		MPI_INFO_NULL, requests(1))
	requests(2) = MPI_REQUEST_NULL
	do round = 1, 4
		mine = [((rank + 1) * k * round, k = 1, 3)]
		got = -1
		if (round < 3) call MPI_Start(requests(1))
		if (round >= 3) call MPI_Startall(1, requests, ierror)
		if (mod(round, 2) == 0) call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
		if (mod(round, 2) == 1) call MPI_Wait(requests(1), MPI_STATUS_IGNORE, ierror)
		call check(all(got == [(total(k) * round, k = 1, 3)]), 'persistent MPI_Allreduce')
	end do
	call MPI_Request_free(requests(1))
	call check(requests(1) == MPI_REQUEST_NULL, 'MPI_Request_free')
#endif
end subroutine

end program

! Pairs of integers as affine maps, one after the other: does not commute.
subroutine chain(in, inout, count, datatype)
	use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
	use mpi_f08, only: MPI_Datatype
	implicit none
	type(c_ptr), value :: in, inout
	integer :: count, k
	type(MPI_Datatype) :: datatype
	integer, pointer :: first(:), second(:)

	call c_f_pointer(in, first, [count])
	call c_f_pointer(inout, second, [count])
	do k = 1, count, 2
		second(k + 1) = second(k) * first(k + 1) + second(k + 1)
		second(k) = second(k) * first(k)
	end do
end subroutine
