"""The encoders of DegradeQuery: molecules from fingerprints and graphs, proteins from features."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.molecules import ATOM_SIZES, BOND_SIZES, FINGERPRINT_BITS

HIDDEN = 512  # of the fingerprint's network
IDENTITY_DROPOUT = 0.5


class Encoded(NamedTuple):
    """Molecules once encoded, to be asked about any target and ligase.

    Attributes:
        pooled: Shape: (B, d).
        tokens: One for each atom, zeros beyond a molecule's own; without the graph there are none.
            Shape: (B, A, g).
        mask: True where there is an atom. Shape: (B, A).
    """

    pooled: Tensor
    tokens: Tensor
    mask: Tensor


class FingerprintEncoder(nn.Module):
    """log(1 + count) of 2215 fingerprint bins to d.

    Args:
        dim: d.
        bit_dropout: Chance of a bin to be silent in training: without it the swaps of pretraining
            are told apart by single bins.
        dropout: Of the hidden layer.
    """

    def __init__(self, dim: int, bit_dropout: float, dropout: float) -> None:
        super().__init__()
        self.bit_dropout = bit_dropout
        self.layers = nn.Sequential(
            nn.Linear(FINGERPRINT_BITS, HIDDEN),
            nn.LayerNorm(HIDDEN),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(HIDDEN, dim),
        )

    def forward(self, fp: Tensor) -> Tensor:
        """Shape: (B, 2215) to (B, d)."""
        pooled: Tensor = self.layers(F.dropout(fp, self.bit_dropout, self.training))
        return pooled


class GraphEncoder(nn.Module):
    """Message passing with edge features, over all atoms of a batch at once.

    The layer is that of GINE ("Strategies for pre-training graph neural networks", W. Hu et al.,
    arXiv 1905.12265). Nothing depends on the order of a molecule's atoms, save the order of its
    tokens.

    Args:
        dim: d of the pooled molecule.
        width: g, of messages and tokens.
        layers: Of message passing.
        dropout: Of each layer.
    """

    def __init__(self, dim: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.atoms = nn.ModuleList(nn.Embedding(size, width) for size in ATOM_SIZES)
        self.bonds = nn.ModuleList(nn.Embedding(BOND_SIZES, width) for _ in range(layers))
        self.updates = nn.ModuleList(
            nn.Sequential(
                nn.Linear(width, 2 * width),
                nn.LayerNorm(2 * width),
                nn.ReLU(),
                nn.Linear(2 * width, width),
                nn.Dropout(dropout),
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, dim)

    def forward(self, atoms: Tensor, bonds: Tensor, ptr: Tensor) -> Encoded:
        """Encodes.

        Args:
            atoms: Categories of all atoms. Shape: (N, 8).
            bonds: Sender, receiver and kind, both directions. Shape: (E, 3).
            ptr: Molecule i has the atoms ``ptr[i]`` to ``ptr[i + 1]``. Shape: (B + 1,).

        Returns:
            The mean of the tokens at width d, and the tokens.
        """
        h = torch.stack([embed(atoms[:, i]) for i, embed in enumerate(self.atoms)]).sum(dim=0)
        sender, receiver, kind = bonds.unbind(dim=1)
        for bond, update in zip(self.bonds, self.updates, strict=True):
            message = F.relu(h[sender] + bond(kind))  # (E, width)
            received = torch.zeros_like(h).index_add_(0, receiver, message.to(h.dtype))
            h = h + update(h + received)
        tokens = self.norm(h)  # (N, g)
        lengths = ptr.diff()
        longest = int(lengths.max())
        molecule = torch.repeat_interleave(lengths)  # (N,)
        place = torch.arange(len(atoms), device=atoms.device) - ptr[molecule]
        padded = tokens.new_zeros(len(lengths), longest, tokens.shape[1])
        padded[molecule, place] = tokens
        mask = torch.arange(longest, device=atoms.device) < lengths[:, None]
        pooled = padded.sum(dim=1) / lengths.clamp_min(1)[:, None]
        return Encoded(self.out(pooled), padded, mask)


class ProteinEncoder(nn.Module):
    """Features of a protein and its identity, one encoder for both roles.

    In training the identity is forgotten half of the time, so that the features alone must do, as
    for a protein that training has not seen.

    Args:
        dim: d.
        features: P.
        proteins: Rows of identities; row 0 is the unknown protein.
    """

    def __init__(self, dim: int, features: int, proteins: int) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(features + 1, dim), nn.GELU(), nn.Linear(dim, dim))
        self.identity = nn.Embedding(proteins, dim)
        nn.init.normal_(self.identity.weight, std=0.02)
        self.role = nn.Embedding(2, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, identity: Tensor, features: Tensor, role: int) -> Tensor:
        """Encodes.

        Args:
            identity: Row of the identity, 0 if unknown. Shape: (..., ).
            features: Zeros where there are none. Shape: (..., P).
            role: 0 for targets, 1 for E3 ligases.

        Returns:
            Shape: (..., d).
        """
        if self.training:
            identity = identity * (
                torch.rand(identity.shape, device=identity.device) >= IDENTITY_DROPOUT
            )
        known = (features != 0).any(dim=-1, keepdim=True).to(features.dtype)
        encoded = self.features(torch.cat([features, known], dim=-1))
        found: Tensor = self.norm(encoded + self.identity(identity) + self.role.weight[role])
        return found


class NoContext(nn.Module):
    """In the place of proteins, a constant for each role: what is left is the molecule alone."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.constant = nn.Embedding(2, dim)

    def forward(self, identity: Tensor, features: Tensor, role: int) -> Tensor:
        """As :meth:`ProteinEncoder.forward`."""
        found: Tensor = self.constant.weight[role].expand(*identity.shape, -1)
        return found
