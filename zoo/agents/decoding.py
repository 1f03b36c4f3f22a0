"""Decoding of the tiny Llama without the layers of a general library around it.

At a width of 64 the arithmetic of a token takes less time than the calls that lead to it. This is
the same network on the same weights in some twenty calls a block: norms are folded into the
matrices behind them, the rotation of queries and keys into the matrix before it, and prompts that
several rows share are read once. Training goes through transformers' own module.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

SPARE = 16  # columns of room beyond what is asked for


class _Block(NamedTuple):
    """Matrices of a layer, transposed for ``addmm``; C is the width, F the MLP's."""

    qkv: Tensor  # (C, 5C): queries, keys, both with their halves swapped, values
    out: Tensor  # (C, C)
    gate_up: Tensor  # (C, 2F)
    down: Tensor  # (F, C)


class LlamaDecoder:
    """Keys, values and weights of one batch of conversations.

    Weights are copied when it is made, so it must not outlive an update of the model.

    Args:
        model: A ``LlamaForCausalLM`` of transformers with as many key heads as query heads, without
            biases and adapters.
    """

    @torch.no_grad()
    def __init__(self, model: Any) -> None:
        config, inner = model.config, model.model
        self.width, self.heads = config.hidden_size, config.num_attention_heads
        self.size, self.eps = self.width // self.heads, config.rms_norm_eps
        self.embedding = inner.embed_tokens.weight
        self.head = (model.lm_head.weight * inner.norm.weight).T.contiguous()  # (C, V)
        self.blocks = [_block(layer, self.heads) for layer in inner.layers]
        places = torch.arange(config.max_position_embeddings, device=self.head.device).float()
        angles = places[:, None] * inner.rotary_emb.inv_freq.to(places)
        both = torch.cat([angles, angles], dim=1)  # (context, D)
        self.cos, self.sin = both.cos().to(self.head), both.sin().to(self.head)
        self.keys: list[Tensor] = []  # of each block, (B, H, room, D)
        self.values: list[Tensor] = []
        self.seen = torch.zeros(0, 0, dtype=torch.bool)  # which columns hold tokens, (B, room)
        self.lengths = torch.zeros(0, dtype=torch.long)  # tokens of each row, (B,)
        self.read = 0  # columns

    def select(self, rows: Tensor) -> None:
        """Goes on with some of the rows."""
        self.keys = [x[rows] for x in self.keys]
        self.values = [x[rows] for x in self.values]
        self.seen, self.lengths = self.seen[rows], self.lengths[rows]

    @torch.no_grad()
    def logits(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Reads further columns.

        Args:
            ids: Shape: (B, T).
            mask: Whether each is a token, not padding. Shape: (B, T), bool.

        Returns:
            Of the token after each row's last column. Shape: (B, V), float32.
        """
        if self.read == 0:  # rollouts of a group share their prompt
            rows = torch.cat([ids, mask], dim=1)
            unique, place = torch.unique(rows, dim=0, return_inverse=True)
            if len(unique) < len(ids):
                first = torch.empty(len(unique), dtype=torch.long, device=ids.device)
                first[place] = torch.arange(len(ids), device=ids.device)
                found = self._read_on(ids[first], mask[first])
                self.select(place)
                return found[place]
        return self._read_on(ids, mask)

    def _read_on(self, ids: Tensor, mask: Tensor) -> Tensor:
        b, t = ids.shape
        start, end = self.read, self.read + t
        x = self.embedding[ids].view(b * t, self.width)
        self._grow(b, end, x)
        if t == 1:
            place = self.lengths[:, None]
        else:
            place = (self.lengths[:, None] + mask.cumsum(dim=1) - 1).clamp_min_(0)
        self.seen[:, start:end] = mask
        self.lengths = self.lengths + mask.sum(dim=1)
        cos, sin = self.cos[place][:, :, None], self.sin[place][:, :, None]  # (B, T, 1, D)
        seen = self.seen[:, None, None, :end]
        if t > 1:
            column = torch.arange(end, device=ids.device)
            seen = seen & (column <= column[start:, None])
            seen = seen | (column == column[start:, None])  # padding sees itself, or gives NaN
        for block, keys, values in zip(self.blocks, self.keys, self.values, strict=True):
            h = (self._normed(x) @ block.qkv).view(b, t, 5 * self.heads, self.size)
            both, swapped, v = torch.split(h, [2 * self.heads, 2 * self.heads, self.heads], 2)
            rotated = torch.addcmul(both * cos, swapped, sin).transpose(1, 2)  # (B, 2H, T, D)
            keys[:, :, start:end] = rotated[:, self.heads :]
            values[:, :, start:end] = v.transpose(1, 2)
            found = F.scaled_dot_product_attention(
                rotated[:, : self.heads], keys[:, :, :end], values[:, :, :end], attn_mask=seen
            )
            x = torch.addmm(x, found.transpose(1, 2).reshape(b * t, self.width), block.out)
            gate, up = (self._normed(x) @ block.gate_up).chunk(2, dim=1)
            x = torch.addmm(x, F.silu(gate).mul_(up), block.down)
        self.read = end
        last = self._normed(x.view(b, t, self.width)[:, -1])
        logits: Tensor = torch.matmul(last, self.head).float()
        return logits

    def _normed(self, x: Tensor) -> Tensor:
        """RMSNorm without its weight, which is in the matrix behind it. Shape: (N, C)."""
        normed: Tensor = F.rms_norm(x, (self.width,), eps=self.eps)
        return normed

    def _grow(self, rows: int, columns: int, like: Tensor) -> None:
        """Makes room for so many columns."""
        room = self.keys[0].shape[2] if self.keys else 0
        if columns <= room:
            return
        room = max(columns + SPARE, 2 * room)
        seen = torch.zeros(rows, room, dtype=torch.bool, device=like.device)
        if self.read == 0:
            self.lengths = torch.zeros(rows, dtype=torch.long, device=like.device)
        else:
            seen[:, : self.read] = self.seen[:, : self.read]
        self.seen = seen
        shape = rows, self.heads, room, self.size
        for buffers in (self.keys, self.values):
            fresh = [like.new_zeros(shape) for _ in self.blocks]
            for new, old in zip(fresh, buffers, strict=False):
                new[:, :, : self.read] = old[:, :, : self.read]
            buffers[:] = fresh


def _block(layer: Any, heads: int) -> _Block:
    attention, mlp = layer.self_attn, layer.mlp
    q, k = attention.q_proj.weight, attention.k_proj.weight
    rows = [q, k, _swapped(q, heads), _swapped(k, heads), attention.v_proj.weight]
    qkv = torch.cat(rows) * layer.input_layernorm.weight
    gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
    gate_up = gate_up * layer.post_attention_layernorm.weight
    out, down = attention.o_proj.weight, mlp.down_proj.weight
    return _Block(*(w.T.contiguous() for w in (qkv, out, gate_up, down)))


def _swapped(weight: Tensor, heads: int) -> Tensor:
    """Rows whose product is (-second half, first half) of each head's. Shape: (C, C)."""
    first, second = weight.view(heads, 2, -1, weight.shape[1]).unbind(1)
    return torch.stack([-second, first], dim=1).reshape(weight.shape)
