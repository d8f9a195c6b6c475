"""foldback's pairs of keys and values from Python: communicators of mpi4py, arrays of NumPy.

The class Pairs is all that a program needs. The demonstration groups random data by key, by numbers and by words, and
compares with NumPy on each rank.

    foldback run -- mpirun -n 4 python3 examples/pairs.py [pairs of each rank]
"""

import ctypes
import sys

import numpy
from mpi4py import MPI

EVERY_RANK = -1
BY_KEY, BY_VALUE = 0, 1


def handle(thing):
    """An MPI handle as an argument of C: an int with MPICH, a pointer with Open MPI."""
    value = MPI._handleof(thing)
    return ctypes.c_int(value) if MPI._sizeof(thing) == ctypes.sizeof(ctypes.c_int) else ctypes.c_void_p(value)


def call(name, *arguments):
    """Calls a function of the library that is preloaded. An error of MPI's is an exception, as in mpi4py."""
    function = getattr(ctypes.CDLL(None), "foldback_pairs_" + name, None)
    if function is None:
        sys.exit(f"pairs: no foldback_pairs_{name}: preload libfoldback.so")
    code = function(*arguments)
    if code != MPI.SUCCESS:
        raise MPI.Exception(code)


class Pairs:
    """Pairs of keys and values over the ranks of a communicator. Values of equal keys are combined by an op.

    All ranks of the communicator call the constructor, flush, gather and free.
    """

    def __init__(self, dtype=numpy.int64, op=MPI.SUM, comm=MPI.COMM_WORLD):
        self.dtype = numpy.dtype(dtype)
        self.pointer = ctypes.c_void_p()
        # mpi4py's own way makes a duplicate, for which MPI has no sums.
        datatype = MPI._typedict[self.dtype.char]
        call("create", handle(datatype), handle(op), handle(comm), ctypes.byref(self.pointer))

    def add(self, keys, values):
        """Adds on this rank. Keys are an array of integers, or a list of bytes and strings."""
        values = numpy.ascontiguousarray(values, self.dtype)
        if values.shape != (len(keys),):
            raise ValueError("each key has one value")
        count = ctypes.c_int64(len(keys))
        data = values.ctypes.data_as(ctypes.c_void_p)
        if isinstance(keys, numpy.ndarray):
            keys = numpy.ascontiguousarray(keys, numpy.uint64)
            call("add", self.pointer, keys.ctypes.data_as(ctypes.c_void_p), data, count)
            return
        keys = [key.encode() if isinstance(key, str) else key for key in keys]
        strings = (ctypes.c_char_p * len(keys))(*keys)
        lengths = (ctypes.c_size_t * len(keys))(*map(len, keys))
        call("add_strings", self.pointer, strings, lengths, data, count)

    def flush(self):
        """Brings all that was added to the shares of the ranks."""
        call("flush", self.pointer)

    def __len__(self):
        """Keys of this rank's share."""
        count = ctypes.c_int64()
        call("count", self.pointer, ctypes.byref(count))
        return count.value

    def get(self):
        """The keys and values of this rank's share; of gathered pairs all, in their order."""
        keys = numpy.empty(len(self), numpy.uint64)
        values = numpy.empty(len(self), self.dtype)
        arrays = (array.ctypes.data_as(ctypes.c_void_p) for array in (keys, values))
        call("get", self.pointer, *arrays)
        return keys, values

    def strings(self):
        """The keys of the same pairs as bytes, where strings were added."""
        strings = (ctypes.c_void_p * len(self))()
        lengths = (ctypes.c_size_t * len(self))()
        call("get_strings", self.pointer, strings, lengths)
        return [ctypes.string_at(string, length) if length else b"" for string, length in zip(strings, lengths)]

    def gather(self, most=-1, order=BY_KEY, root=EVERY_RANK):
        """The first `most` pairs of all ranks, or all, at one rank or at every rank. Elsewhere there are none."""
        gathered = object.__new__(Pairs)
        gathered.dtype, gathered.pointer = self.dtype, ctypes.c_void_p()
        arguments = (ctypes.c_int64(most), ctypes.c_int(order), ctypes.c_int(root))
        call("gather", self.pointer, *arguments, ctypes.byref(gathered.pointer))
        return gathered

    def free(self):
        """Ends them."""
        call("free", ctypes.byref(self.pointer))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        # After an error the other ranks may be elsewhere.
        if kind is None:
            self.free()


WORLD = MPI.COMM_WORLD


def data_of(rank, count):
    """Random keys, some more frequent than others, and values. Each rank knows all ranks' data."""
    random = numpy.random.default_rng(rank)
    keys = (random.pareto(1, count) * 100).astype(numpy.uint64)
    return keys, random.integers(-1000, 1000, count)


def check(what, is_right):
    """Ends the job if not."""
    if not is_right:
        print(f"pairs: rank {WORLD.rank}: {what}: not as NumPy has it", file=sys.stderr, flush=True)
        WORLD.Abort(1)


def group_by_number(all_data, own):
    """Sums, and greatest values, of each key."""
    keys = numpy.concatenate([data[0] for data in all_data])
    values = numpy.concatenate([data[1] for data in all_data])
    different, places = numpy.unique(keys, return_inverse=True)
    sums = numpy.zeros(len(different), numpy.int64)
    numpy.add.at(sums, places, values)
    greatest = numpy.full(len(different), -numpy.inf)
    numpy.maximum.at(greatest, places, values)

    for name, dtype, op, right in (("sums", numpy.int64, MPI.SUM, sums), ("maxima", numpy.float64, MPI.MAX, greatest)):
        with Pairs(dtype, op) as pairs:
            # In two parts: what is flushed is combined with what was there.
            half = len(own[0]) // 2
            for part in (slice(0, half), slice(half, None)):
                pairs.add(own[0][part], own[1][part])
                pairs.flush()
            share, found = pairs.get()
            at = numpy.searchsorted(different, share)
            check(f"keys of a share of {name}", numpy.array_equal(different[at], share))
            check(f"a share of {name}", numpy.array_equal(right[at], found))
            check("shares", WORLD.allreduce(len(pairs)) == len(different))
            with pairs.gather() as gathered:
                share, found = gathered.get()
                check(f"all {name}", numpy.array_equal(different, share) and numpy.array_equal(right, found))
            first = numpy.lexsort((different, -right))[:10]
            with pairs.gather(10, BY_VALUE, root=0) as gathered:
                share, found = gathered.get()
                expected = (different[first], right[first]) if WORLD.rank == 0 else ([], [])
                check(f"greatest {name}", numpy.array_equal(share, expected[0]))
                check(f"values of greatest {name}", numpy.array_equal(found, expected[1]))
                if WORLD.rank == 0:
                    greatest_first = ", ".join(f"{key}: {value:.0f}" for key, value in zip(share[:3], found))
                    print(f"pairs: {name} of {len(different)} keys, the greatest {greatest_first}", flush=True)


def group_by_word(all_data, own):
    """Numbers as words; the empty one, and one with a NUL, are among them."""

    def words(keys):
        return [b"" if key == 0 else b"one\0" if key == 1 else b"key %d" % key for key in keys]

    counts = {}
    for keys, _ in all_data:
        for word in words(keys):
            counts[word] = counts.get(word, 0) + 1
    with Pairs() as pairs:
        pairs.add(words(own[0]), numpy.ones(len(own[0])))
        pairs.flush()
        own_share = dict(zip(pairs.strings(), pairs.get()[1]))
        check("a share of words", all(counts.get(word) == count for word, count in own_share.items()))
        check("shares of words", WORLD.allreduce(len(own_share)) == len(counts))
        with pairs.gather() as gathered:
            found = list(zip(gathered.strings(), gathered.get()[1]))
            check("all words", found == sorted(counts.items()))
    if WORLD.rank == 0:
        print(f"pairs: counts of {len(counts)} words", flush=True)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    all_data = [data_of(rank, count) for rank in range(WORLD.size)]
    own = all_data[WORLD.rank]
    group_by_number(all_data, own)
    group_by_word(all_data, own)
    if WORLD.rank == 0:
        print("pairs: all as NumPy has it", flush=True)


if __name__ == "__main__":
    main()
