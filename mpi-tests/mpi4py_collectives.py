"""Collectives from Python: of objects and of buffers, blocking, non-blocking and persistent.

Every answer is compared with the known one. Needs mpi4py and nothing else.

    mpi4py_collectives.py [ROUNDS]
"""

import sys
from array import array

from mpi4py import MPI

# Elements that a rank contributes.
COUNT = 5


def ints(values):
    return array("i", values)


def zeros(count):
    return ints([0] * count)


def check(what, got, expected):
    if got != expected:
        comm = MPI.COMM_WORLD
        print(f"{what}, rank {comm.rank}: {got}, not {expected}", file=sys.stderr, flush=True)
        comm.Abort(1)


def contribution(rank, round):
    return [10 * rank + round + i for i in range(COUNT)]


def total(ranks, round):
    """The sum of what the first ranks contribute."""
    return [10 * (ranks * (ranks - 1) // 2) + ranks * (round + i) for i in range(COUNT)]


def objects(comm, round):
    rank, size = comm.rank, comm.size
    root = round % size
    text = {"round": round, "text": "fold" * (1 + round)}
    check("bcast", comm.bcast(text if rank == root else None, root), text)
    mine = (rank, "x" * (3 * rank + round))
    everybody = [(r, "x" * (3 * r + round)) for r in range(size)]
    check("gather", comm.gather(mine, root), everybody if rank == root else None)
    check("allgather", comm.allgather(mine), everybody)
    check("scatter", comm.scatter(everybody if rank == root else None, root), mine)
    pairs = comm.alltoall([(rank, r, round) for r in range(size)])
    check("alltoall", pairs, [(r, rank, round) for r in range(size)])
    check("allreduce", comm.allreduce([rank]), list(range(size)))
    check("reduce", comm.reduce(rank, MPI.MAX, root), size - 1 if rank == root else None)
    check("scan", comm.scan(rank), rank * (rank + 1) // 2)
    comm.barrier()


def operations(comm, round, nonblocking, kept):
    """Calls each collective of buffers once. Yields its name, what the call returned, the buffer
    that it writes, and what must be there when it is over. Puts all buffers into `kept`: they must
    stay until then, and mpi4py's requests do not hold all (the one that Ireduce_scatter sends)."""
    rank, size = comm.rank, comm.size
    root = round % size

    def call(name, *arguments):
        kept.append(arguments)
        return getattr(comm, "I" + name.lower() if nonblocking else name)(*arguments)

    mine = ints(contribution(rank, round))
    sums = total(size, round)
    everybody = [x for r in range(size) for x in contribution(r, round)]
    # For each rank, what the others send it.
    to_all = ints([100 * rank + r + round for r in range(size)])
    # Rank r gives r + 1 elements.
    counts = [r + 1 for r in range(size)]
    uneven = [10 * r + i + round for r in range(size) for i in range(r + 1)]
    my_uneven = ints([10 * rank + i + round for i in range(rank + 1)])

    out = zeros(COUNT)
    yield "Allreduce", call("Allreduce", mine, out), out, sums
    inout = ints(mine)
    yield "Allreduce in place", call("Allreduce", MPI.IN_PLACE, inout), inout, sums
    least = zeros(COUNT)
    yield "Allreduce, MIN", call("Allreduce", mine, least, MPI.MIN), least, contribution(0, round)
    out = zeros(COUNT)
    there = sums if rank == root else [0] * COUNT
    yield "Reduce", call("Reduce", mine, out, MPI.SUM, root), out, there
    buffer = ints(contribution(root, round)) if rank == root else zeros(COUNT)
    yield "Bcast", call("Bcast", buffer, root), buffer, contribution(root, round)
    out = zeros(COUNT * size)
    yield "Allgather", call("Allgather", mine, out), out, everybody
    out = zeros(len(uneven))
    yield "Allgatherv", call("Allgatherv", my_uneven, [out, counts]), out, uneven
    out = zeros(COUNT * size)
    there = everybody if rank == root else [0] * COUNT * size
    yield "Gather", call("Gather", mine, out, root), out, there
    out = zeros(COUNT)
    yield "Scatter", call("Scatter", ints(everybody), out, root), out, contribution(rank, round)
    several = ints([x for _ in range(size) for x in mine])
    out = zeros(COUNT)
    yield "Reduce_scatter_block", call("Reduce_scatter_block", several, out), out, sums
    ones = ints([1 + round] * sum(counts))
    out = zeros(rank + 1)
    yield (
        "Reduce_scatter",
        call("Reduce_scatter", ones, out, counts),
        out,
        [size * (1 + round)] * (rank + 1),
    )
    out = zeros(COUNT)
    yield "Scan", call("Scan", mine, out), out, total(rank + 1, round)
    out = zeros(COUNT)
    there = total(rank, round) if rank > 0 else [0] * COUNT
    yield "Exscan", call("Exscan", mine, out), out, there
    out = zeros(size)
    came = [100 * r + rank + round for r in range(size)]
    yield "Alltoall", call("Alltoall", to_all, out), out, came
    yield "Barrier", call("Barrier"), zeros(0), []


def buffers(comm, round):
    for name, _, got, expected in operations(comm, round, nonblocking=False, kept=[]):
        check(name, list(got), expected)


def requests(comm, round):
    """Non-blocking ones, all under way at once, completed in one of several ways."""
    kept = []
    started = list(operations(comm, round, nonblocking=True, kept=kept))
    open_requests = [request for _, request, _, _ in started]
    if round % 3 == 0:
        MPI.Request.Waitall(open_requests)
    elif round % 3 == 1:
        for request in reversed(open_requests):
            request.Wait()
    else:
        while not MPI.Request.Testall(open_requests):
            pass
    for name, _, got, expected in started:
        check("I" + name.lower(), list(got), expected)


def persistent(comm, rounds):
    """Where the MPI has them."""
    mine, out = zeros(COUNT), zeros(COUNT)
    try:
        request = comm.Allreduce_init(mine, out)
    except NotImplementedError:
        return
    for round in range(rounds):
        mine[:] = ints(contribution(comm.rank, round))
        request.Start()
        request.Wait()
        check("Allreduce_init", list(out), total(comm.size, round))
    request.Free()


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    world = MPI.COMM_WORLD
    reversed_world = world.Split(0, -world.rank)
    for comm in (world, world.Dup(), reversed_world):
        for round in range(rounds):
            objects(comm, round)
            buffers(comm, round)
            requests(comm, round)
        persistent(comm, rounds)
        if comm is not world:
            comm.Free()
    if world.rank == 0:
        print(f"mpi4py_collectives: {rounds} rounds ok", flush=True)


main()
