"""The packages of apt as a graph: a vertex for each package, an edge for each dependency, in both directions.

A package's features are the words of its short description, its label is its section. The parts of the graph, one for
each rank, are made by linear deterministic greedy partitioning (Stanton and Kliot, KDD 2012): a vertex goes where most
of its neighbours are, unless that part is full.
"""

import collections
import re
import subprocess
import sys

import numpy as np
from scipy import sparse

WORDS = 256
# In so many packages a word says nothing.
TOO_COMMON = 0.05
DEPENDENCIES = ("Depends", "Pre-Depends", "Recommends")
# Labels with fewer packages are left out.
FEWEST = 100


def stanzas(text):
    """Each package's fields, once."""
    seen = set()
    for stanza in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if re.match(r"[A-Z][\w-]*: ", line))
        name = fields.get("Package")
        if name and name not in seen and "Section" in fields:
            seen.add(name)
            yield fields


def needed(fields):
    """Names of the packages that one needs, alternatives among them."""
    for key in DEPENDENCIES:
        for name in re.split(r"[,|]", fields.get(key, "")):
            yield re.sub(r"[\s(:].*", "", name.strip())


def read():
    """The graph: a symmetric matrix of edges, features as a matrix of 0 and 1, labels (-1: none), their names."""
    text = subprocess.run(["apt-cache", "dumpavail"], stdout=subprocess.PIPE, check=True, text=True).stdout
    packages = sorted(stanzas(text), key=lambda fields: fields["Package"])
    if not packages:
        raise SystemExit("gnn: apt knows no packages here: apt-get update")
    number = {fields["Package"]: at for at, fields in enumerate(packages)}
    edges = {
        (at, number[name])
        for at, fields in enumerate(packages)
        for name in needed(fields)
        if name in number and number[name] != at
    }
    ends = np.array(sorted(edges)).T
    ones = np.ones(ends.shape[1], dtype=np.int32)
    matrix = sparse.csr_matrix((ones, ends), shape=(len(packages), len(packages)))
    matrix = matrix.maximum(matrix.T).tocsr()

    texts = [set(re.findall(r"[a-z]{3,}", fields.get("Description", "").lower())) for fields in packages]
    counts = collections.Counter(word for words in texts for word in words)
    usable = [(count, word) for word, count in counts.items() if count < TOO_COMMON * len(packages)]
    words = {word: at for at, (_, word) in enumerate(sorted(usable, reverse=True)[:WORDS])}
    features = np.zeros((len(packages), WORDS), dtype=np.int32)
    for at, found in enumerate(texts):
        features[at, [words[word] for word in found if word in words]] = 1

    # "contrib/libs" is as good as "libs".
    sections = [fields["Section"].rsplit("/", 1)[-1] for fields in packages]
    names = sorted(name for name, count in collections.Counter(sections).items() if count >= FEWEST)
    labels = np.array([names.index(name) if name in names else -1 for name in sections])
    return matrix, features, labels, names


def partition(matrix, parts):
    """The part of each vertex."""
    vertices = matrix.shape[0]
    room = -(-vertices // parts)
    of = np.full(vertices, -1)
    sizes = np.zeros(parts)
    # From those with most neighbours on: the others follow them.
    for vertex in np.argsort(-np.diff(matrix.indptr), kind="stable"):
        near = of[matrix.indices[matrix.indptr[vertex] : matrix.indptr[vertex + 1]]]
        neighbours = np.bincount(near[near >= 0], minlength=parts)
        free = 1 - sizes / room
        best = np.lexsort((free, (neighbours + 1e-3) * free))[-1]
        of[vertex] = best
        sizes[best] += 1
    return of


def main():
    """Writes the graph and its parts to a file: packages.py FILE PARTS."""
    path, parts = sys.argv[1], int(sys.argv[2])
    matrix, features, labels, names = read()
    part = partition(matrix, parts)
    np.savez(
        path, indptr=matrix.indptr, indices=matrix.indices, features=features, labels=labels, names=names, part=part
    )
    ends = matrix.tocoo()
    cut = np.mean(part[ends.row] != part[ends.col])
    print(
        f"gnn: {matrix.shape[0]:,} packages, {matrix.nnz // 2:,} edges, {len(names)} sections;"
        f" {100 * cut:.0f} % of the edges are between the {parts} parts"
    )


if __name__ == "__main__":
    main()
