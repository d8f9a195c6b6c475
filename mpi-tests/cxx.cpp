// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Collectives from C++, by the C bindings: vectors and arrays as buffers, requests in a class that
// waits in its destructor, and exceptions that fly past collectives under way.
#define OMPI_SKIP_MPICXX 1 // the old C++ bindings
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <array>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

namespace
{

int rank, ranks;

void check(bool ok, const char *what)
{
	if (!ok)
		throw std::runtime_error(what);
}

// An operation under way. Waiting in the destructor also happens while an exception unwinds.
class Pending
{
      public:
	Pending() = default;
	Pending(const Pending &) = delete;
	Pending &operator=(const Pending &) = delete;
	~Pending()
	{
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}

	MPI_Request request = MPI_REQUEST_NULL;
};

class Communicator
{
      public:
	explicit Communicator(MPI_Comm of)
	{
		MPI_Comm_dup(of, &comm);
	}
	Communicator(const Communicator &) = delete;
	Communicator &operator=(const Communicator &) = delete;
	~Communicator()
	{
		MPI_Comm_free(&comm);
	}

	MPI_Comm comm = MPI_COMM_NULL;
};

void vectors(int round)
{
	std::vector<long> mine(17 + round), sums(mine.size(), -1);
	std::vector<int> all(ranks, -1);
	std::array<double, 3> d = {rank + 0.5, 1.0, -rank / 4.0}, most;

	std::iota(mine.begin(), mine.end(), rank);
	MPI_Allreduce(mine.data(), sums.data(), static_cast<int>(mine.size()), MPI_LONG, MPI_SUM,
		      MPI_COMM_WORLD);
	for (size_t i = 0; i < sums.size(); i++)
		check(sums[i] == static_cast<long>(i) * ranks + ranks * (ranks - 1L) / 2,
		      "MPI_Allreduce");
	MPI_Allgather(&rank, 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < ranks; i++)
		check(all[i] == i, "MPI_Allgather");
	MPI_Allreduce(d.data(), most.data(), 3, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	check(most[0] == ranks - 0.5 && most[1] == 1 && most[2] == 0, "MPI_Allreduce of doubles");

	bool truth = rank != round % ranks, both = true;
	MPI_Allreduce(&truth, &both, 1, MPI_CXX_BOOL, MPI_LAND, MPI_COMM_WORLD);
	check(!both, "MPI_Allreduce of bool");

	std::complex<double> c(rank, 1), sum;
	MPI_Allreduce(&c, &sum, 1, MPI_CXX_DOUBLE_COMPLEX, MPI_SUM, MPI_COMM_WORLD);
	check(sum == std::complex<double>(ranks * (ranks - 1) / 2, ranks),
	      "MPI_Allreduce of complex");

	std::string text(8, '.');
	if (rank == round % ranks)
		text = "foldback";
	MPI_Bcast(&text[0], 8, MPI_CHAR, round % ranks, MPI_COMM_WORLD);
	check(text == "foldback", "MPI_Bcast of a string");
}

// The buffers outlive the operations, of which some are still under way when it is thrown.
void exceptions(int round)
{
	std::vector<long> sums(8, -1);
	std::vector<long> mine(8, rank + round);
	bool caught = false;

	try {
		std::vector<std::unique_ptr<Pending>> all;

		for (int i = 0; i < 8; i++) {
			all.push_back(std::make_unique<Pending>());
			MPI_Iallreduce(&mine[i], &sums[i], 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD,
				       &all[i]->request);
			if (i == 3)
				MPI_Wait(&all[1]->request, MPI_STATUS_IGNORE);
			if (i == 5)
				throw std::out_of_range("on purpose");
		}
	} catch (const std::out_of_range &error) {
		caught = true;
	}
	check(caught, "exception");
	for (int i = 0; i < 8; i++)
		check(sums[i] == (i > 5 ? -1 : ranks * (ranks - 1L) / 2 + ranks * round),
		      "MPI_Iallreduce before an exception");
}

void communicators(int round)
{
	try {
		Communicator one(MPI_COMM_WORLD), two(one.comm);
		long value = round + rank, least = -1;

		MPI_Allreduce(&value, &least, 1, MPI_LONG, MPI_MIN, two.comm);
		check(least == round, "MPI_Allreduce on a duplicate");
		throw least;
	} catch (long least) {
		check(least == round, "exception");
	}
}

// From a destructor while an exception unwinds, and from the handler that caught it.
void in_handlers(int round)
{
	struct Barrier {
		~Barrier()
		{
			MPI_Barrier(MPI_COMM_WORLD);
		}
	};

	try {
		Barrier barrier;
		throw round;
	} catch (int thrown) {
		MPI_Bcast(&thrown, 1, MPI_INT, 0, MPI_COMM_WORLD);
		check(thrown == round, "MPI_Bcast in a handler");
	}
}

// A C++ function as operation.
void greatest(void *in, void *out, int *count, MPI_Datatype *)
{
	auto *first = static_cast<int *>(in), *second = static_cast<int *>(out);

	for (int i = 0; i < *count; i++)
		second[i] = std::max(first[i], second[i]);
}

void own_operation()
{
	auto operation = std::unique_ptr<MPI_Op, void (*)(MPI_Op *)>(new MPI_Op, [](MPI_Op *op) {
		MPI_Op_free(op);
		delete op;
	});
	int most = -1;

	MPI_Op_create(greatest, 1, operation.get());
	MPI_Allreduce(&rank, &most, 1, MPI_INT, *operation, MPI_COMM_WORLD);
	check(most == ranks - 1, "MPI_Allreduce by the program's own operation");
}

} // namespace

int main(int argc, char **argv)
{
	alarm(300); // a hang ends by the signal
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	try {
		for (int round = 0; round < 50; round++) {
			vectors(round);
			exceptions(round);
			communicators(round);
			in_handlers(round);
			own_operation();
		}
	} catch (const std::exception &error) {
		std::fprintf(stderr, "cxx: FAILED: rank %d: %s\n", rank, error.what());
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	if (rank == 0)
		std::puts("cxx: all ok");
	MPI_Finalize();
	return 0;
}
