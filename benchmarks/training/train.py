"""Data-parallel training with mpi4py and PyTorch: handwritten digits, one model, every rank a part of the data.

After each step the ranks' gradients are summed by one MPI_Allreduce of floats, on a communicator that asks for
--quantize by a hint. Prints a line of JSON: loss of each epoch, accuracy on digits that were not trained on, seconds.

    mpirun … python3 train.py [--quantize int8,error_feedback] [--seed N] [--epochs N]
"""

import argparse
import json
import time

import numpy as np
import torch
from mpi4py import MPI
from sklearn.datasets import load_digits

# Digits that a rank looks at in a step, and the model: 64 pixels, two hidden layers, ten digits.
BATCH = 16
HIDDEN = 512


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quantize", default="off", help="as FOLDBACK_QUANTIZE (off)")
    parser.add_argument("--seed", type=int, default=1, help="of the model and the data (1)")
    parser.add_argument("--epochs", type=int, default=20, help="times over all data (20)")
    return parser.parse_args()


def communicator(quantize):
    """All ranks; foldback takes the hint, other MPIs do not know it."""
    info = MPI.Info.Create()
    info.Set("foldback_quantize", quantize)
    comm = MPI.COMM_WORLD.Dup_with_info(info)
    info.Free()
    return comm


def digits(seed, rank, ranks):
    """This rank's part of four fifths of the data, as long as everyone's, and the last fifth, which is for testing."""
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    pixels = torch.tensor(pixels[order] / 16, dtype=torch.float32)
    labels = torch.tensor(labels[order])
    train = len(labels) * 4 // 5 // ranks * ranks
    part = slice(rank, train, ranks)
    return (pixels[part], labels[part]), (pixels[train:], labels[train:])


def model_of(seed):
    """The same on all ranks, with all gradients in one vector."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, 10),
    )
    gradients = torch.zeros(sum(weights.numel() for weights in model.parameters()))
    at = 0
    for weights in model.parameters():
        weights.grad = gradients[at : at + weights.numel()].view_as(weights)
        at += weights.numel()
    return model, gradients


def main():
    options = arguments()
    torch.set_num_threads(1)
    comm = communicator(options.quantize)
    rank, ranks = comm.rank, comm.size
    (pixels, labels), (test_pixels, test_labels) = digits(options.seed, rank, ranks)
    model, gradients = model_of(options.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    shuffle = torch.Generator().manual_seed(1000 * options.seed + rank)
    losses, waiting, communication = [], 0.0, 0.0
    comm.Barrier()
    begin = time.perf_counter()
    for _ in range(options.epochs):
        total = np.zeros(1)
        batches = torch.randperm(len(labels), generator=shuffle).split(BATCH)
        for batch in batches:
            gradients.zero_()
            loss = torch.nn.functional.cross_entropy(model(pixels[batch]), labels[batch])
            loss.backward()
            computed = time.perf_counter()
            # Only to tell waiting for the slowest rank from what the sum takes.
            comm.Barrier()
            met = time.perf_counter()
            comm.Allreduce(MPI.IN_PLACE, gradients.numpy())
            communication += time.perf_counter() - met
            waiting += met - computed
            gradients.div_(ranks)
            optimizer.step()
            total += loss.item() / len(batches) / ranks
        comm.Allreduce(MPI.IN_PLACE, total)
        losses.append(float(total[0]))
    seconds = time.perf_counter() - begin
    with torch.no_grad():
        right = (model(test_pixels).argmax(1) == test_labels).double().mean().item()
    # Ranks whose models have parted train nothing together.
    weights = torch.cat([weights.detach().flatten() for weights in model.parameters()]).numpy()
    alike = comm.allreduce(bool((comm.bcast(weights) == weights).all()), MPI.LAND)
    if rank == 0:
        print(
            json.dumps(
                {
                    "quantize": options.quantize,
                    "seed": options.seed,
                    "ranks": ranks,
                    "bytes": gradients.numel() * 4,
                    "loss": losses,
                    "accuracy": right,
                    "seconds": seconds,
                    "communication": communication,
                    "waiting": waiting,
                    "alike": alike,
                }
            ),
            flush=True,
        )
    comm.Free()


main()
