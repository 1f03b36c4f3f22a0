"""Several ranks: one momentum on all of them, equal to one process with the joint batch."""

import socket
from contextlib import contextmanager
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from tests.optim.test_keys import Attention
from zoo.errors import ZooError
from zoo.optim import DeltaAdamW, DeltaSGD, attach_delta_keys

STEPS = 20


def batch(step, rank=None):
    x = torch.randn(2, 8, 6, generator=torch.Generator().manual_seed(step))
    return x.flatten(0, 1) if rank is None else x[rank]


def train(net, optimizer, rank=None, skip=lambda rank, step: False):
    """Weights after 20 steps; the output of the joint batch is the mean over ranks."""
    for step in range(STEPS):
        optimizer.zero_grad()
        (net(batch(step, rank), skip(rank, step)) - 1).square().mean().backward()
        optimizer.step()


def build(cls=DeltaAdamW):
    torch.manual_seed(0)
    net = Attention()
    return net, cls(net.parameters(), lr=0.05)


def flat(net):
    weights = (p.full_tensor() if hasattr(p, "full_tensor") else p for p in net.parameters())
    return torch.cat([w.detach().flatten() for w in weights])


@contextmanager
def counted_reductions():
    """Sizes of what is reduced by ``dist.all_reduce`` inside; DDP itself does not call that."""
    sizes, original = [], dist.all_reduce

    def counting(tensor, *args, **kwargs):
        sizes.append(tensor.numel())
        return original(tensor, *args, **kwargs)

    dist.all_reduce = counting
    yield sizes
    dist.all_reduce = original


def work(rank, port, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    found = {}
    for name, cls in (("adamw", DeltaAdamW), ("sgd", DeltaSGD)):
        net, optimizer = build(cls)
        with attach_delta_keys(net, key_fraction=1.0), counted_reductions() as sizes:
            train(DistributedDataParallel(net), optimizer, rank)
        found[name] = flat(net)
        found[f"{name}_buckets"] = torch.tensor(sizes)
    # A layer that only one rank uses in some steps.
    net, optimizer = build()
    with attach_delta_keys(net, key_fraction=1.0):
        ddp = DistributedDataParallel(net, find_unused_parameters=True)
        train(ddp, optimizer, rank, skip=lambda rank, step: rank == 1 and step % 3 == 1)
    found["skipped"] = flat(net)
    mesh = init_device_mesh("cpu", (2,))
    net, _ = build()
    fully_shard(net, mesh=mesh)
    optimizer = DeltaAdamW(net.parameters(), lr=0.05)
    with attach_delta_keys(net, key_fraction=1.0):
        train(net, optimizer, rank)
    found["fsdp"] = flat(net)
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(work, (port, str(folder)), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adamw", "sgd", "skipped", "fsdp"])
def test_ranks_have_the_same_weights_to_the_last_bit(ranks, name):
    assert torch.equal(ranks[0][name], ranks[1][name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cls"), [("adamw", DeltaAdamW), ("sgd", DeltaSGD), ("fsdp", DeltaAdamW)]
)
def test_two_processes_are_one_with_the_joint_batch(ranks, name, cls):
    net, optimizer = build(cls)
    with attach_delta_keys(net, key_fraction=1.0):
        train(net, optimizer)
    torch.testing.assert_close(ranks[0][name], flat(net), atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_one_bucket_a_step(ranks):
    """Two inputs, of which one is shared by three layers: two sums and their counts."""
    assert ranks[0]["adamw_buckets"].tolist() == [2 * (36 + 1)] * STEPS
    assert all(a == b for a, b in pairwise(ranks[0]["sgd_buckets"].tolist()))


@pytest.fixture
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_weights_sharded_within_rows_are_refused(mesh):
    for placement in (Shard(0), Replicate(), Shard(1)):
        layer = nn.Linear(4, 4)
        layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach(), mesh, [placement]))
        if placement == Shard(1):
            with pytest.raises(ZooError, match="whole rows"):
                attach_delta_keys(layer)
        else:
            attach_delta_keys(layer).remove()


def test_flat_parameters_are_refused():
    layer = nn.Linear(4, 3)
    layer.weight = nn.Parameter(torch.zeros(12))
    with pytest.raises(ZooError, match="fully_shard"):
        attach_delta_keys(layer)
