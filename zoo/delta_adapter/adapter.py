"""The adapter: gated projection, resampler, and the keys and values of each block of the editor."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from zoo.delta_adapter.delta import token_norm
from zoo.layers.perceiver import PerceiverResampler


@dataclass(frozen=True)
class Edit:
    """An edit, ready for every step of the sampler and every query.

    Attributes:
        keys: K' of each block. Shape: (blocks, B, heads, Q, d).
        values: V', the same.
        down: First factor of W_o' of each block. Shape: (blocks, heads * d, r).
        up: Second factor. Shape: (blocks, r, heads * d).
        strength: s; 0 is no edit.
    """

    keys: Tensor
    values: Tensor
    down: Tensor
    up: Tensor
    strength: float | Tensor = 1.0

    def of(self, strength: float | Tensor) -> Edit:
        """The same edit at another strength: a number, or one of each sample, (B,)."""
        return replace(self, strength=strength)

    def expand(self, count: int) -> Edit:
        """One exemplar's edit for ``count`` queries, without copies."""
        shape = (-1, count, -1, -1, -1)
        return replace(self, keys=self.keys.expand(shape), values=self.values.expand(shape))


class GatedProjection(nn.Module):
    """Delta' = Delta + tanh(g) * MLP(LN(Delta)), g = 0 for each channel at first.

    While g is 0 only g itself gets a gradient, so the MLP's last layer must not be zero as well.

    Args:
        channels: Of the tokens.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(channels))
        self.mlp = nn.Sequential(
            nn.LayerNorm(channels),
            nn.Linear(channels, 2 * channels),
            nn.GELU(),
            nn.Linear(2 * channels, channels),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Shape: (B, P, C) to the same."""
        out: Tensor = tokens + self.gate.tanh() * self.mlp(tokens)
        return out


class DeltaAdapterNetwork(nn.Module):
    """From the tokens of a pair to an :class:`Edit`.

    W_o' is a product of two factors: one full matrix for each of the 57 blocks of FLUX would be
    538 M parameters, more than all else of the adapter together. The second factor starts at zero,
    so that at first the editor gives bit for bit what it gives without an adapter.

    Args:
        channels: Of the encoder's features.
        positions: P, patches of one image.
        pair: Whether the tokens are those of two images.
        width: d_a.
        tokens: Q.
        layers: Of the resampler.
        blocks: Of the editor.
        heads: Of its attention.
        head_dim: d, of each head.
        out_rank: r, of W_o'.
    """

    def __init__(
        self,
        channels: int,
        positions: int,
        pair: bool,
        width: int,
        tokens: int,
        layers: int,
        blocks: int,
        heads: int,
        head_dim: int,
        out_rank: int,
    ) -> None:
        super().__init__()
        self.blocks, self.heads, inner = blocks, heads, heads * head_dim
        self.project = GatedProjection(channels)
        self.to_width = nn.Linear(channels, width)
        # A learned vector for each place of the 2-D grid of patches (twice with two images).
        self.positions = nn.Parameter(0.02 * torch.randn((1 + pair) * positions, width))
        self.resampler = PerceiverResampler(width, tokens, layers)
        # Read in place of the edit tokens when there is no edit, so that every block runs.
        self.null = nn.Parameter(torch.randn(tokens, width))
        self.to_k = nn.Linear(width, blocks * inner, bias=False)
        self.to_v = nn.Linear(width, blocks * inner, bias=False)
        self.down = nn.Parameter(torch.randn(blocks, inner, out_rank) * inner**-0.5)
        self.up = nn.Parameter(torch.zeros(blocks, out_rank, inner))

    def tokens(self, pair: Tensor, visible: Tensor | None = None) -> Tensor:
        """Edit tokens E of what the encoder gave for a pair.

        Args:
            pair: See :func:`zoo.delta_adapter.delta.condition_tokens`. Shape: (B, P, C).
            visible: Tokens that are not dropped. Shape: (B, P), bool.

        Returns:
            Shape: (B, Q, d_a).
        """
        projected = self.to_width(self.project(pair)) + self.positions
        out: Tensor = self.resampler(projected, visible)
        return out

    def null_tokens(self, count: int) -> Tensor:
        """E of "no edit". Shape: (count, Q, d_a)."""
        return token_norm(self.null).to(self.null.dtype).expand(count, -1, -1)

    def edit(self, tokens: Tensor, strength: float | Tensor = 1.0) -> Edit:
        """K' and V' of all blocks at once. Shape of ``tokens``: (B, Q, d_a)."""
        keys, values = (
            layer(tokens).unflatten(-1, (self.blocks, self.heads, -1)).permute(2, 0, 3, 1, 4)
            for layer in (self.to_k, self.to_v)
        )  # (blocks, B, heads, Q, d)
        return Edit(keys, values, self.down, self.up, strength)
