"""The network of DegradeQuery: target and ligase together are a query over the molecule.

Two fusions read the same encoders. One, for compatibility, is what pretraining trains; the other,
for degradation, begins anew with fine-tuning. With a single fusion for both, pretraining made
degradation harder to learn: what it had learned is to bring all recorded tuples together, active or
not, while its encoders helped (model_cards/degrade_query.md has the figures).

Reference:
    The method's abstract (counterfactual tuple pretraining for degradation by PROTACs); its text
    was not at hand. Encoders, fusion and weights here are ours.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.degrade_query.encoders import (
    Encoded,
    FingerprintEncoder,
    GraphEncoder,
    NoContext,
    ProteinEncoder,
)

MOLECULE = ("both", "fingerprint", "graph")
HEADS = 4  # of attention


class TupleQuery(nn.Module):
    """A fusion: from an encoded molecule, a target and a ligase to what their tuple looks like.

    The query q = MLP([t; e; t * e]) scales and shifts the pooled molecule (FiLM), and asks the
    atoms twice, once for the target's side and once for the ligase's.

    Args:
        dim: d.
        atoms: g, width of the atom tokens to ask; 0 if there are none.
        dropout: Of the fused representation.
    """

    def __init__(self, dim: int, atoms: int, dropout: float) -> None:
        super().__init__()
        self.atoms = atoms > 0
        self.query = nn.Sequential(nn.Linear(3 * dim, dim), nn.GELU(), nn.Linear(dim, dim))
        self.film = nn.Linear(dim, 2 * dim)
        nn.init.zeros_(self.film.bias)
        if atoms:
            self.ask = nn.Linear(dim, 2 * dim)
            self.keys = nn.Linear(atoms, dim)
            self.values = nn.Linear(atoms, dim)
        parts = 4 if atoms else 2
        self.fuse = nn.Sequential(
            nn.LayerNorm(parts * dim),
            nn.Linear(parts * dim, 2 * dim),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(2 * dim, dim),
        )

    def forward(self, molecule: Encoded, target: Tensor, e3: Tensor) -> tuple[Tensor, Tensor]:
        """Fuses each of B molecules with S pairs of its own.

        Args:
            molecule: B of them.
            target: Encoded targets. Shape: (B, S, d).
            e3: Encoded ligases. Shape: (B, S, d).

        Returns:
            The representation, (B, S, d), and the attention of both sides, which sums to 1 over
            the atoms, (B, S, 2, A); A is 0 without atom tokens.
        """
        q = self.query(torch.cat([target, e3, target * e3], dim=-1))  # (B, S, d)
        scale, shift = self.film(q).chunk(2, dim=-1)
        parts = [molecule.pooled[:, None] * (1 + scale) + shift, q]
        attention = q.new_zeros(*q.shape[:2], 2, 0)
        if self.atoms:
            found, attention = self._attend(molecule, q)
            parts.append(found)
        return self.fuse(torch.cat(parts, dim=-1)), attention

    def _attend(self, molecule: Encoded, q: Tensor) -> tuple[Tensor, Tensor]:
        batch, pairs, dim = q.shape
        size = dim // HEADS
        ask = self.ask(q).view(batch, pairs * 2, HEADS, size).transpose(1, 2)  # (B, h, 2 S, d/h)
        keys, values = (
            layer(molecule.tokens).view(batch, -1, HEADS, size).transpose(1, 2)  # (B, h, A, d/h)
            for layer in (self.keys, self.values)
        )
        logits = ask @ keys.transpose(-1, -2) / math.sqrt(size)  # (B, h, 2 S, A)
        logits = logits.float().masked_fill(~molecule.mask[:, None, None], -1e9)
        weights = logits.softmax(dim=-1)
        found = (weights.to(values.dtype) @ values).transpose(1, 2)  # (B, 2 S, h, d/h)
        mean = weights.mean(dim=1).view(batch, pairs, 2, -1)
        return found.reshape(batch, pairs, 2 * dim), mean


class DegradeQueryNet(nn.Module):
    """Encoders, and a fusion and a head for each of the two questions.

    Args:
        dim: d.
        gnn_layers: Of message passing.
        gnn_dim: Its width.
        molecule: "both", "fingerprint" or "graph".
        protein_dim: P.
        proteins: Identities, the first of which is the unknown protein.
        language: Width of a language model's features of the SMILES; 0 for none.
        context: Look at target and ligase.
        bit_dropout: Of fingerprint bins.
        dropout: Of all else.
        potency: Have a head for pDC50 and Dmax.
    """

    def __init__(
        self,
        dim: int,
        gnn_layers: int,
        gnn_dim: int,
        molecule: str,
        protein_dim: int,
        proteins: int,
        language: int,
        context: bool,
        bit_dropout: float,
        dropout: float,
        potency: bool,
    ) -> None:
        super().__init__()
        self.potency = nn.Linear(dim, 2) if potency else None
        self.fingerprint = self.graph = self.language = None
        if molecule in ("both", "fingerprint"):
            self.fingerprint = FingerprintEncoder(dim, bit_dropout, dropout)
        if molecule in ("both", "graph"):
            self.graph = GraphEncoder(dim, gnn_dim, gnn_layers, dropout)
        if language:
            self.language = nn.Sequential(nn.LayerNorm(language), nn.Linear(language, dim))
        self.norm = nn.LayerNorm(dim)
        self.protein: ProteinEncoder | NoContext = NoContext(dim)
        if context:
            self.protein = ProteinEncoder(dim, protein_dim, proteins)
        atoms = 0 if self.graph is None else gnn_dim
        self.matching = TupleQuery(dim, atoms, dropout)
        self.compatibility = Compatibility(dim)
        self.tuple = TupleQuery(dim, atoms, dropout)
        self.degradation = nn.Sequential(nn.LayerNorm(dim), nn.Dropout(dropout), nn.Linear(dim, 1))

    def encode(
        self,
        fp: Tensor,
        atoms: Tensor,
        bonds: Tensor,
        ptr: Tensor,
        language: Tensor | None = None,
    ) -> Encoded:
        """Encodes molecules, without target and ligase, as ``MoleculeTable.batch`` gives them.

        Args:
            fp: Shape: (B, 2215).
            atoms: Shape: (N, 8).
            bonds: Shape: (E, 3).
            ptr: Shape: (B + 1,).
            language: Shape: (B, L).
        """
        pooled = fp.new_zeros(())
        empty = fp.new_zeros(len(fp), 0, self.norm.normalized_shape[0])
        tokens, mask = empty, empty[..., 0].bool()
        if self.fingerprint is not None:
            pooled = pooled + self.fingerprint(fp)
        if self.graph is not None:
            found = self.graph(atoms, bonds, ptr)
            pooled, tokens, mask = pooled + found.pooled, found.tokens, found.mask
        if self.language is not None and language is not None:
            pooled = pooled + self.language(language)
        return Encoded(self.norm(pooled), tokens, mask)


class Compatibility(nn.Module):
    """s = cos(w_c, P(r)), and the temperature by which pretraining divides it.

    P is a small network. Without it, all recorded tuples would be driven to the one direction w_c,
    and r would have nothing else left to tell about them.
    """

    def __init__(self, dim: int, temperature: float = 0.1) -> None:
        super().__init__()
        self.project = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))
        self.weight = nn.Parameter(torch.randn(dim) / math.sqrt(dim))
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))

    def forward(self, r: Tensor) -> Tensor:
        """Shape: (..., d) to (...,), in -1..1."""
        return F.cosine_similarity(self.project(r).float(), self.weight.float(), dim=-1)

    def temperature(self) -> Tensor:
        """At least 0.02, so that the loss cannot run away by scale alone. Shape: ()."""
        return self.log_temperature.exp().clamp_min(0.02)
