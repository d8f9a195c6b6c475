"""One job of a parameter study: a start, a few collectives, an end.

The parameters come from rank 0, each rank has its part of the samples, and rank 0 gathers what came of them.
"""

from mpi4py import MPI

SAMPLES = 2000
STEPS = 5

comm = MPI.COMM_WORLD
parameters = {"seed": 7, "scale": 0.5} if comm.rank == 0 else None
parameters = comm.bcast(parameters)
mine = range(comm.rank, SAMPLES, comm.size)
mean = 0.0
for step in range(STEPS):
    terms = (((index * parameters["seed"] + step) % 13) * parameters["scale"] - mean / 2 for index in mine)
    mean = comm.allreduce(sum(terms)) / SAMPLES
counts = comm.gather(len(mine))
if comm.rank == 0:
    assert sum(counts) == SAMPLES, counts
    print(f"study: {mean:.6f}")
