// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Error handlers and operations that do not return: they throw, or jump. The errors are those of a
// root that has too little room for what it gathers.
//
//   handlers [--folded]    --folded: also what not every MPI outlives by itself
#define OMPI_SKIP_MPICXX 1 // the old C++ bindings
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace
{

enum { LENGTH = 2, ROUNDS = 60, MOST = 64 };

struct Left {
};

int rank, ranks;
bool jumps;
std::jmp_buf back;

void leave(MPI_Comm *, int *, ...)
{
	if (jumps)
		std::longjmp(back, 1);
	throw Left();
}

void leave_from(void *, void *, int *, MPI_Datatype *)
{
	throw Left();
}

void check(bool ok, const char *what)
{
	if (ok)
		return;
	std::fprintf(stderr, "handlers: rank %d: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

// Whether it was left by the handler.
template <class Call> bool is_left(Call call)
{
	if (jumps) {
		if (setjmp(back))
			return true;
		call();
		return false;
	}
	try {
		call();
	} catch (const Left &) {
		return true;
	}
	return false;
}

// Others go on as if nothing had been.
void sums(MPI_Comm comm)
{
	for (int i = 0; i < 3; i++) {
		long mine = rank + i, sum = -1;

		MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, comm);
		check(sum == ranks * i + ranks * (ranks - 1) / 2, "a wrong sum");
	}
}

long mine[LENGTH], all[LENGTH * MOST];

// Calls that follow come from here too, further down the stack than those that were left.
__attribute__((noinline)) void sums_below(MPI_Comm comm)
{
	volatile char deep[4096];

	std::memset(const_cast<char *>(deep), rank, sizeof(deep));
	sums(comm);
	check(deep[100] == static_cast<char>(rank), "the stack is not as it was");
}

void gather(MPI_Comm comm)
{
	int room = rank == 0 ? 1 : LENGTH;
	auto call = [=] { MPI_Gather(mine, LENGTH, MPI_LONG, all, room, MPI_LONG, 0, comm); };

	check(is_left(call) == (rank == 0), "Gather: the root's handler, and no other, is called");
	sums_below(comm);
}

// Whether a handler is called as a collective starts or is waited for. Then the request is still
// the program's to wait for.
template <class Start> bool is_told(Start start)
{
	static MPI_Request request; // a jump leaves it as it is
	bool told = is_left([=] {
		start(&request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	});

	MPI_Wait(&request, MPI_STATUS_IGNORE);
	return told;
}

// Ranks that do not agree on the length, and a root that has too little room, are told by the
// handler of MPI_COMM_WORLD.
void meanwhile(MPI_Comm comm)
{
	int count = rank == 0 ? LENGTH : 1, told, anybody = 0;

	told = is_told(
	    [=](MPI_Request *request) { MPI_Ibcast(mine, count, MPI_LONG, 0, comm, request); });
	MPI_Allreduce(&told, &anybody, 1, MPI_INT, MPI_SUM, comm);
	check(anybody > 0, "Ibcast: some rank's handler is called");
	told = is_told([=](MPI_Request *request) {
		int room = rank == 0 ? 1 : LENGTH;

		MPI_Igather(mine, LENGTH, MPI_LONG, all, room, MPI_LONG, 0, comm, request);
	});
	check(told == (rank == 0), "Igather: the root's handler, and no other, is called");
	sums(comm);
}

void operate(MPI_Comm comm)
{
	MPI_Op op;
	auto call = [&] { MPI_Allreduce(mine, all, LENGTH, MPI_LONG, op, comm); };

	MPI_Op_create(leave_from, 1, &op);
	check(is_left(call), "an operation throws");
	MPI_Op_free(&op);
	sums(comm);
}

} // namespace

int main(int argc, char **argv)
{
	bool folded = argc > 1 && !std::strcmp(argv[1], "--folded");
	MPI_Errhandler handler;
	MPI_Comm comm;

	alarm(300);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Comm_create_errhandler(leave, &handler);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, handler);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
	for (int i = 0; i < 8; i++)
		sums(comm);
	for (int i = 0; i < 2 * ROUNDS; i++) {
		jumps = i % 2;
		gather(comm);
		if (folded)
			meanwhile(comm);
	}
	jumps = false;
	if (folded)
		operate(comm);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	MPI_Errhandler_free(&handler);
	MPI_Comm_free(&comm);
	MPI_Finalize();
	if (!rank)
		std::printf("handlers: all ok, %d ranks\n", ranks);
	return 0;
}
