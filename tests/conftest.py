"""What holds for every test: no network, one thread, a working folder of its own."""

import os
import socket
import warnings

import pytest
import torch

from .hub.fixture import hub as hub

os.environ.setdefault("MPLBACKEND", "Agg")
torch.set_num_threads(1)

LOOPBACK = ("127.", "::1", "localhost")


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
