"""A decoder of the Llama kind, the network that the delta rule is measured on.

Reference:
    Blocks as in H. Touvron et al., "LLaMA", arXiv 2302.13971: RMSNorm before each part, rotary
    positions, SwiGLU, no biases; embedding and output are not tied, and the output starts at zero.
    muP: G. Yang et al., "Tensor Programs V", arXiv 2203.03466.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

ROPE_BASE = 10_000.0


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder.

    Attributes:
        width: d, of the residual stream.
        layers: L.
        heads: Of attention; they divide the width into parts of even size.
        hidden: Of the gated MLP, about 8/3 d.
        vocab_size: V.
        context: T, the longest window.
    """

    width: int
    layers: int
    heads: int
    hidden: int
    vocab_size: int
    context: int


def rotary(x: Tensor) -> Tensor:
    """Turns pairs of channels by an angle that grows with the position (RoPE, arXiv 2104.09864).

    Args:
        x: Queries or keys. Shape: (B, H, T, C), C even.
    """
    half = x.shape[-1] // 2
    rate = ROPE_BASE ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)[:, None] * rate
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)  # (T, C/2)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Attention(nn.Module):
    """Causal self-attention.

    Args:
        width: d.
        heads: H.
        scale: Of the products of queries and keys.
    """

    def __init__(self, width: int, heads: int, scale: float) -> None:
        super().__init__()
        self.heads, self.scale = heads, scale
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Shape of both: (B, T, d)."""
        # One tensor goes into all three, so that they share one Gram matrix of keys.
        q, k, v = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, C)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        out = F.scaled_dot_product_attention(
            rotary(q), rotary(k), v, is_causal=True, scale=self.scale
        )
        mixed: Tensor = self.o_proj(out.transpose(1, 2).flatten(2))
        return mixed


class GatedMLP(nn.Module):
    """SwiGLU: ``down(silu(gate x) * up x)``."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Shape of both: (B, T, d)."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Block(nn.Module):
    """Attention and MLP, each behind a norm and beside a residual path."""

    def __init__(self, shape: Shape, scale: float) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width)
        self.attention = Attention(shape.width, shape.heads, scale)
        self.mlp_norm = nn.RMSNorm(shape.width)
        self.mlp = GatedMLP(shape.width, shape.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Shape of both: (B, T, d)."""
        x = x + self.attention(self.attention_norm(x))
        out: Tensor = x + self.mlp(self.mlp_norm(x))
        return out


class Decoder(nn.Module):
    """From token ids to logits of the next.

    Args:
        shape: Its sizes.
        mup: Parametrise so that the best learning rate does not depend on the width: attention is
            scaled by 1 / C, not 1 / sqrt(C), and logits by ``base_width / d``. What the optimiser
            has to do is in :meth:`groups`.
        base_width: At which muP leaves learning rate and logits as they are.
        checkpointing: Recompute the blocks in the backward pass: less memory, a third more time.
    """

    def __init__(
        self, shape: Shape, mup: bool = False, base_width: int = 96, checkpointing: bool = False
    ) -> None:
        super().__init__()
        self.shape, self.checkpointing = shape, checkpointing
        self.ratio = base_width / shape.width if mup else 1.0
        channels = shape.width // shape.heads
        scale = 1 / channels if mup else channels**-0.5
        self.embedding = nn.Embedding(shape.vocab_size, shape.width)
        self.blocks = nn.ModuleList(Block(shape, scale) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        self.lm_head = nn.Linear(shape.width, shape.vocab_size, bias=False)
        for matrix in self.hidden_matrices():
            nn.init.normal_(matrix, std=matrix.shape[1] ** -0.5)
        nn.init.zeros_(self.lm_head.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits.

        Args:
            ids: Tokens below V, int64. Shape: (B, T).

        Returns:
            Scores of the next token at each position. Shape: (B, T, V).
        """
        x = self.embedding(ids)
        for block in self.blocks:
            if self.checkpointing and self.training:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        logits: Tensor = self.lm_head(self.norm(x)) * self.ratio
        return logits

    def hidden_matrices(self) -> list[nn.Parameter]:
        """The weights of the blocks' linear layers."""
        return [p for p in self.blocks.parameters() if p.ndim == 2]

    def groups(self, lr: float) -> list[dict[str, object]]:
        """Parameters for an optimiser of Adam's kind: hidden matrices, then all others.

        Args:
            lr: At the base width; muP divides that of hidden matrices by the width. The strength
                of the delta rule, eta, is the same at all widths.
        """
        hidden = self.hidden_matrices()
        known = set(map(id, hidden))
        others = [p for p in self.parameters() if id(p) not in known]
        return [{"params": hidden, "lr": lr * self.ratio}, {"params": others, "lr": lr}]
