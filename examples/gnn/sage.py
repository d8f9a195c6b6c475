"""GraphSAGE (Hamilton, Ying and Leskovec, NeurIPS 2017) of two layers with means, full-batch, each rank a part of a graph.

Each epoch the ranks exchange rows of three matrices for the vertices at their borders: the features, which never
change, the hidden layer, and its gradients. --way says how:

    halo    MPI_Neighbor_alltoallv: to each rank the rows that it needs
    cache   the same, but for the features: foldback_neighbor_cache_reduce, which sends rows that have changed
    none    no rows, and no edges at all: the same network of words alone

Rows travel as integers (fixed point), so all ways bring the same bits. Prints a line of JSON: loss of each epoch,
accuracy on packages that were not trained on, seconds and bytes of an epoch.

    packages.py graph.npz 4
    mpirun -n 4 python3 sage.py --graph graph.npz [--way halo] [--seed N] [--epochs N]
"""

import argparse
import ctypes
import json
import time

import numpy as np
from mpi4py import MPI
from scipy import sparse

HIDDEN = 32
# Fixed point: of a row's numbers, so many make 1.
SCALE = 1 << 12
GRADIENT_SCALE = 1 << 30
RATE, DECAY = 0.01, 5e-4
BETAS = (0.9, 0.999)
TRAINED, TESTED = 0.6, 0.2


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", required=True, help="what packages.py has written")
    parser.add_argument("--way", choices=("halo", "cache", "none"), default="halo", help="of border rows (halo)")
    parser.add_argument("--seed", type=int, default=1, help="of the weights and of who is tested (1)")
    parser.add_argument("--epochs", type=int, default=60, help="times over the graph (60)")
    return parser.parse_args()


class Part:
    """A rank's part of the graph."""

    def __init__(self, graph, rank, edges):
        part = graph["part"]
        vertices = len(part)
        shape = (vertices, vertices)
        ones = np.ones(len(graph["indices"]), dtype=np.float32)
        matrix = sparse.csr_matrix((ones, graph["indices"], graph["indptr"]), shape=shape)
        if not edges:
            matrix = sparse.csr_matrix(shape, dtype=np.float32)
        self.own = np.flatnonzero(part == rank)
        mine = matrix[self.own].tocsr()
        self.degree = np.maximum(np.diff(mine.indptr), 1).astype(np.float32)[:, None]
        ends = matrix.tocoo()
        cut = part[ends.row] != part[ends.col]
        # All vertices with an edge to another part, in the order in which their rows travel.
        self.border = np.unique(ends.row[cut])
        self.inside = mine[:, self.own].tocsr()
        of = part[self.border]
        self.across = (mine[:, self.border] @ sparse.diags((of != rank).astype(np.float32))).tocsr()
        self.across.eliminate_zeros()
        # By rank: border rows that come from it, and that it needs.
        into = np.unique(self.across.indices)
        self.ranks = [int(other) for other in np.unique(of[into])]
        self.incoming = {other: into[of[into] == other] for other in self.ranks}
        place = np.full(vertices, -1)
        place[self.own] = np.arange(len(self.own))
        needs = {other: (part[ends.col] == rank) & (part[ends.row] == other) for other in self.ranks}
        self.outgoing = {other: place[np.unique(ends.col[mask])] for other, mask in needs.items()}
        # This rank's border rows, among its own and among all.
        self.mine = np.flatnonzero(of == rank)
        self.sent = place[self.border[self.mine]]


class Halo:
    """Rows by MPI_Neighbor_alltoallv."""

    def __init__(self, comm, part, width):
        self.comm, self.part, self.width = comm, part, width
        counts = lambda rows: [width * len(rows[other]) for other in part.ranks]
        self.to, self.of = counts(part.outgoing), counts(part.incoming)
        self.order = np.concatenate([part.outgoing[other] for other in part.ranks])
        self.place = np.concatenate([part.incoming[other] for other in part.ranks])
        self.all = np.zeros((len(part.border), width), dtype=np.int32)
        self.came = np.empty((len(self.place), width), dtype=np.int32)

    def exchange(self, rows, is_new):
        out = np.ascontiguousarray(rows[self.order])
        self.comm.Neighbor_alltoallv([out, self.to, MPI.INT], [self.came, self.of, MPI.INT])
        self.all[self.place] = self.came
        return self.all, True


class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("reductions", "reused", "bytes", "bytes_sent")]


class Cache:
    """Rows by foldback: each rank has its own rows in a vector of all, and zeros, which are never sent."""

    def __init__(self, comm, part, width):
        self.library, self.part = ctypes.CDLL(None), part
        self.vector = np.zeros((len(part.border), width), dtype=np.int32)
        self.sum = np.empty_like(self.vector)
        self.cache = ctypes.c_void_p()
        handle = lambda of: ctypes.c_void_p(MPI._handleof(of))
        self.check(
            self.library.foldback_neighbor_cache_create(
                ctypes.c_int(self.vector.size),
                handle(MPI.INT),
                handle(MPI.SUM),
                ctypes.c_int(width),
                handle(comm),
                ctypes.byref(self.cache),
            )
        )
        self.blocks = part.mine.astype(np.int32)

    @staticmethod
    def check(code):
        if code != 0:
            raise SystemExit(f"foldback returned {code}")

    def reused(self):
        counts = Counts()
        self.library.foldback_neighbor_cache_counts(self.cache, ctypes.byref(counts))
        return counts.reused

    def exchange(self, rows, is_new):
        if is_new:
            self.vector[self.part.mine] = rows[self.part.sent]
        before = self.reused()
        address = lambda array: ctypes.c_void_p(array.ctypes.data)
        self.check(
            self.library.foldback_neighbor_cache_reduce(
                self.cache,
                address(self.vector),
                address(self.sum),
                ctypes.c_int(len(self.blocks) if is_new else 0),
                address(self.blocks),
            )
        )
        return self.sum, self.reused() == before


class Nothing:
    """No rows."""

    def __init__(self, comm, part, width):
        self.rows = np.zeros((len(part.border), width), dtype=np.int32)

    def exchange(self, rows, is_new):
        return self.rows, False


class Means:
    """Sums of rows over neighbours here and elsewhere, kept for as long as nothing changes."""

    def __init__(self, way, comm, part, width, scale):
        self.way, self.part, self.scale, self.last = way(comm, part, width), part, scale, None

    def sum(self, rows, is_new=True):
        fixed = np.rint(rows * self.scale).astype(np.int32)
        others, is_changed = self.way.exchange(fixed, is_new)
        if is_new or is_changed or self.last is None:
            inside = self.part.inside @ fixed.astype(np.float32)
            self.last = (inside + self.part.across @ others.astype(np.float32)) / np.float32(self.scale)
        return self.last


def adam(weights, gradients, moments, step):
    for weight, gradient, (first, second) in zip(weights, gradients, moments):
        gradient = gradient + DECAY * weight
        first += (1 - BETAS[0]) * (gradient - first)
        second += (1 - BETAS[1]) * (gradient**2 - second)
        lead = first / (1 - BETAS[0] ** step)
        weight -= RATE * lead / (np.sqrt(second / (1 - BETAS[1] ** step)) + 1e-8)


def sent_by_host():
    """Bytes and frames that this host has sent on its network; of the lab's hosts each has its own."""
    try:
        with open("/proc/net/dev", encoding="ascii") as lines:
            fields = [line.split() for line in lines if line.strip().startswith("eth0:")]
        return np.array([int(fields[0][9]), int(fields[0][10])])
    except (OSError, IndexError):
        return np.zeros(2, dtype=int)


def train(options, comm):
    graph = np.load(options.graph)
    part = Part(graph, comm.rank, options.way != "none")
    neighbors = comm.Create_dist_graph_adjacent(part.ranks, part.ranks)
    features = graph["features"][part.own].astype(np.float32)
    labels = graph["labels"][part.own]
    # All ranks draw the same numbers.
    random = np.random.default_rng(options.seed)
    lot = random.random(len(graph["labels"]))[part.own]
    has_label = labels >= 0
    trained, tested = has_label & (lot < TRAINED), has_label & (lot >= 1 - TESTED)
    width, classes = features.shape[1], len(graph["names"])
    draw = lambda rows, columns: (random.standard_normal((rows, columns)) * (2 / rows) ** 0.5).astype(np.float32)
    weights = [draw(width, HIDDEN), draw(width, HIDDEN), draw(HIDDEN, classes), draw(HIDDEN, classes)]
    moments = [(np.zeros_like(weight), np.zeros_like(weight)) for weight in weights]
    all_trained = comm.allreduce(int(trained.sum()))
    steady, moving = {"halo": (Halo, Halo), "cache": (Cache, Halo), "none": (Nothing, Nothing)}[options.way]
    first = Means(steady, neighbors, part, width, 1)
    hidden = Means(moving, neighbors, part, HIDDEN, SCALE)
    back = Means(moving, neighbors, part, HIDDEN, GRADIENT_SCALE)
    target = np.eye(classes, dtype=np.float32)[np.maximum(labels, 0)] * trained[:, None]

    losses, seconds, sent = [], [], []
    for epoch in range(1, options.epochs + 1):
        comm.Barrier()
        begin, before = time.perf_counter(), sent_by_host()
        near = first.sum(features, epoch == 1) / part.degree
        drive = features @ weights[0] + near @ weights[1]
        active = np.maximum(drive, 0)
        near_active = hidden.sum(active) / part.degree
        scores = active @ weights[2] + near_active @ weights[3]
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        chances /= chances.sum(axis=1, keepdims=True)
        loss = -np.sum(target * np.log(chances + 1e-12)) / all_trained
        off = (chances * trained[:, None] - target) / all_trained
        # The mean of neighbours, the other way: each gives its part to all that it is a neighbour of.
        through = back.sum((off @ weights[3].T) / part.degree)
        of_active = (off @ weights[2].T + through) * (drive > 0)
        gradients = [features.T @ of_active, near.T @ of_active, active.T @ off, near_active.T @ off]
        flat = np.concatenate([gradient.ravel() for gradient in gradients] + [np.array([loss], dtype=np.float32)])
        total = np.empty_like(flat)
        comm.Allreduce(flat, total)
        at = 0
        for gradient in gradients:
            gradient[...] = total[at : at + gradient.size].reshape(gradient.shape)
            at += gradient.size
        adam(weights, gradients, moments, epoch)
        losses.append(float(total[-1]))
        comm.Barrier()
        seconds.append(time.perf_counter() - begin)
        sent.append((sent_by_host() - before).tolist())
    guess = scores.argmax(axis=1)
    right = comm.allreduce(int(np.sum((guess == labels) & tested)))
    of_all = comm.allreduce(int(tested.sum()))
    sent = comm.allreduce(np.array(sent))
    # The first epoch sets up, and the cache sends all features in it.
    usual = slice(1, None) if options.epochs > 1 else slice(None)
    return {
        "losses": losses,
        "accuracy": right / of_all,
        "epoch": float(np.median(seconds[usual])),
        "all": float(np.sum(seconds)),
        "bytes": float(np.median(sent[usual, 0])),
        "frames": float(np.median(sent[usual, 1])),
        "bytes_all": float(sent[:, 0].sum()),
        "reused": first.way.reused() if options.way == "cache" else 0,
    }


def main():
    options = arguments()
    results = train(options, MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(results), flush=True)


if __name__ == "__main__":
    main()
