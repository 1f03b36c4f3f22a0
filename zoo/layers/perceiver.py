"""Perceiver resampler: a few learned queries that read any number of tokens.

Source: J.-B. Alayrac et al., Flamingo, arXiv 2204.14198, section 3.1.1; A. Jaegle et al.,
Perceiver, arXiv 2103.03206.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class PerceiverLayer(nn.Module):
    """q <- q + MHA(LN q, [LN t, LN q]); q <- q + FFN(LN q).

    Args:
        width: Channels of queries and tokens.
        heads: Of attention.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_tokens = nn.LayerNorm(width)
        self.norm_queries = nn.LayerNorm(width)
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_kv = nn.Linear(width, 2 * width, bias=False)
        self.to_out = nn.Linear(width, width, bias=False)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, queries: Tensor, tokens: Tensor, visible: Tensor | None = None) -> Tensor:
        """Shape: (B, Q, width), (B, P, width) and (B, P) to (B, Q, width)."""
        q = self.norm_queries(queries)
        keys, values = self.to_kv(torch.cat([self.norm_tokens(tokens), q], dim=1)).chunk(2, dim=-1)
        mask = None
        if visible is not None:
            mask = F.pad(visible, (0, queries.shape[1]), value=True)[
                :, None, None
            ]  # (B, 1, 1, P+Q)
        attended = F.scaled_dot_product_attention(
            self._split(self.to_q(q)), self._split(keys), self._split(values), attn_mask=mask
        )  # (B, heads, Q, d)
        queries = queries + self.to_out(attended.transpose(1, 2).flatten(2))
        out: Tensor = queries + self.feed_forward(queries)
        return out

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class PerceiverResampler(nn.Module):
    """From P tokens to Q, whatever P is.

    Args:
        width: Channels of the tokens.
        queries: Q.
        layers: Number of :class:`PerceiverLayer`.
        heads: Of attention.
    """

    def __init__(self, width: int, queries: int, layers: int, heads: int = 4) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(queries, width) * width**-0.5)
        self.layers = nn.ModuleList(PerceiverLayer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, visible: Tensor | None = None) -> Tensor:
        """Reads the tokens.

        Args:
            tokens: Shape: (B, P, width).
            visible: False where a token must not be read. Shape: (B, P), bool.

        Returns:
            Layer-normalised. Shape: (B, Q, width).
        """
        queries = self.queries.expand(len(tokens), -1, -1)
        for layer in self.layers:
            queries = layer(queries, tokens, visible)
        out: Tensor = self.norm(queries)
        return out
