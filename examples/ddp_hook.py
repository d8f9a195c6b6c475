"""PyTorch's DistributedDataParallel whose gradients are summed by MPI: a communication hook over mpi4py.

With foldback preloaded the sums are quantized as the hint of the communicator says; without it they are the
MPI's own, of floats.

    mpirun -x LD_PRELOAD=…/libfoldback.so … python3 examples/ddp_hook.py [int8,error_feedback]
"""

import os
import socket
import sys

import torch
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel


def sum_by_mpi(comm, bucket):
    """The hook: the mean of a bucket of gradients over all ranks."""
    gradients = bucket.buffer()
    comm.Allreduce(MPI.IN_PLACE, gradients.numpy())
    gradients.div_(comm.size)
    future = torch.futures.Future()
    future.set_result(gradients)
    return future


def own_address():
    """This host's address towards others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent; RFC 5737 has the address for documentation.
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError:
            return socket.gethostbyname(socket.gethostname())


def main():
    world = MPI.COMM_WORLD
    # DDP wants a process group of PyTorch's; it sends the first weights by that, and no gradients.
    address = world.bcast(os.environ.get("MASTER_ADDR") or own_address())
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://{address}:29500", rank=world.rank, world_size=world.size
    )

    info = MPI.Info.Create()
    info.Set("foldback_quantize", sys.argv[1] if len(sys.argv) > 1 else "off")
    gradients = world.Dup_with_info(info)

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
    model = DistributedDataParallel(model)
    model.register_comm_hook(gradients, sum_by_mpi)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    teacher = torch.randn(64, 8) / 8
    torch.manual_seed(100 + world.rank)
    for step in range(101):
        inputs = torch.randn(32, 64)
        loss = (model(inputs) - inputs @ teacher).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = world.allreduce(loss.item()) / world.size
        if world.rank == 0 and step % 20 == 0:
            print(f"step {step:3}: loss {mean:.4f}", flush=True)
    torch.distributed.destroy_process_group()


main()
