"""What holds for every test: no network, one thread, a working folder of its own."""

import os
import random
import socket
import warnings

import numpy as np
import pytest
import torch

from .hub.fixture import hub as hub

os.environ.setdefault("MPLBACKEND", "Agg")
torch.set_num_threads(1)

LOOPBACK = ("127.", "::1", "localhost")


def draw_alike():
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  of libraries that draw from it
    torch.manual_seed(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Fixtures of every scope draw alike, whichever tests this process ran before."""
    draw_alike()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    """So does the test itself, whether or not it is the one that made a shared fixture."""
    draw_alike()


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Refuses connections to anything but this machine."""
    connect = socket.socket.connect

    def guarded(self, address):
        if isinstance(address, tuple) and not str(address[0]).startswith(LOOPBACK):
            raise OSError(f"tests have no network: {address[0]}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Each test works in an empty folder, and leaves no seed or warning filter behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    with warnings.catch_warnings():
        yield
    os.environ.pop("PL_GLOBAL_SEED", None)
