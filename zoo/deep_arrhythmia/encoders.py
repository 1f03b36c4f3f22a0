"""From signal, picture, measures and report to tokens of one width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import timm
import torch
from torch import Tensor, nn

from zoo.deep_arrhythmia.measures import MEASURES
from zoo.deep_arrhythmia.report import WORDS
from zoo.errors import ZooError, missing_extra

TINY = "tiny"
NONE = "none"
STRIDE = 32  # samples of the signal a token
WIDTHS = (32, 64, 96)
KERNEL = 5
PERIODS_S = (0.1, 20.0)  # of the fastest and slowest wave of a time's embedding
IMAGE_STRIDE = 8  # columns a token of the small image encoder
IMAGE_ROWS = 16  # rows a token
Z_LIMIT = 5.0  # beyond it a measure is an outlier, as far as the network sees
TINY_BERT = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
BERT_VOCABULARY = 28996  # of bert-base-cased, which Bio_ClinicalBERT continues


def embed_time(seconds: Tensor, dim: int) -> Tensor:
    """Sines and cosines of a time. Shape: (...) gives (..., dim)."""
    low, high = (math.log(2 * math.pi / p) for p in reversed(PERIODS_S))
    rates = torch.linspace(low, high, dim // 2, device=seconds.device).exp()
    angles = seconds[..., None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class Residual(nn.Module):
    """Two convolutions with a shortcut, at half the rate."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        pad = KERNEL // 2
        self.body = nn.Sequential(
            nn.Conv1d(inputs, outputs, KERNEL, stride=2, padding=pad, bias=False),
            nn.BatchNorm1d(outputs),
            nn.GELU(),
            nn.Conv1d(outputs, outputs, KERNEL, padding=pad, bias=False),
            nn.BatchNorm1d(outputs),
        )
        self.shortcut = nn.Conv1d(inputs, outputs, 1, stride=2, bias=False)
        self.act = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        """Shape: (B, C, T) gives (B, C', T / 2)."""
        result: Tensor = self.act(self.body(x) + self.shortcut(x))
        return result


class SignalEncoder(nn.Module):
    """A one-dimensional residual network over the leads.

    Args:
        leads: C.
        dim: Of the tokens.
    """

    def __init__(self, leads: int, dim: int) -> None:
        super().__init__()
        widths = (*WIDTHS, dim)
        self.net = nn.Sequential(
            nn.Conv1d(leads, widths[0], 15, stride=2, padding=7, bias=False),
            nn.BatchNorm1d(widths[0]),
            nn.GELU(),
            *(Residual(a, b) for a, b in zip((widths[0], *widths), widths, strict=False)),
        )

    def forward(self, signal: Tensor) -> Tensor:
        """One token for 32 samples, the first at sample 0. Shape: (B, C, T) gives (B, L, dim)."""
        tokens: Tensor = self.net(signal).transpose(1, 2)
        return tokens


class TinyImageEncoder(nn.Module):
    """Three convolutions; a token is a column of the picture.

    Args:
        height: Pixels, a multiple of 16.
        dim: Of the tokens.
    """

    def __init__(self, height: int, dim: int) -> None:
        super().__init__()
        if height % IMAGE_ROWS:
            raise ZooError(f"image_size: the height {height} must be a multiple of {IMAGE_ROWS}.")
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 7, stride=4, padding=3, bias=False),
            nn.BatchNorm2d(16),
            nn.GELU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.GELU(),
            nn.Conv2d(32, 32, 3, stride=(2, 1), padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.GELU(),
        )
        self.project = nn.Linear(32 * (height // IMAGE_ROWS), dim)

    def forward(self, image: Tensor) -> Tensor:
        """Shape: (B, 3, H, W) gives (B, W / 8, dim)."""
        columns = self.net(2 * image - 1).flatten(1, 2).transpose(1, 2)
        tokens: Tensor = self.project(columns)
        return tokens


class ViTImageEncoder(nn.Module):
    """A vision transformer of timm; a token is a patch.

    Args:
        name: For instance "vit_small_patch16_224.augreg_in21k".
        pretrained: Whether to fetch its weights.
        size: Height and width, pixels.
        dim: Of the tokens.
    """

    trunk: Any
    mean: Tensor
    std: Tensor

    def __init__(self, name: str, pretrained: bool, size: Sequence[int], dim: int) -> None:
        super().__init__()
        try:
            self.trunk = timm.create_model(
                name, pretrained=pretrained, num_classes=0, img_size=tuple(size)
            )
        except (RuntimeError, TypeError) as error:
            raise ZooError(
                f"image_backbone {name!r} is neither {TINY!r}, {NONE!r} nor a vision transformer "
                f"of timm: {error}"
            ) from error
        self.trunk.fc_norm = nn.Identity()  # patches are taken, not their mean
        self.project = nn.Linear(int(self.trunk.embed_dim), dim)
        config: Any = self.trunk.default_cfg
        self.register_buffer("mean", torch.tensor(config["mean"]).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(config["std"]).view(3, 1, 1), persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        """Row after row. Shape: (B, 3, H, W) gives (B, patches, dim)."""
        features = self.trunk.forward_features((image - self.mean) / self.std)
        tokens: Tensor = self.project(features[:, self.trunk.num_prefix_tokens :])
        return tokens

    @property
    def columns(self) -> int:
        """Patches in a row."""
        return int(self.trunk.patch_embed.grid_size[1])


class MeasureEncoder(nn.Module):
    """A perceptron over the measures and over which of them there are.

    Args:
        dim: Of the tokens.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2 * len(MEASURES), dim), nn.GELU(), nn.Linear(dim, dim), nn.LayerNorm(dim)
        )

    def forward(self, measures: Tensor) -> Tensor:
        """Of z-scores, NaN where not measurable. Shape: (..., 16) gives (..., dim)."""
        there = measures.isfinite()
        known = torch.where(there, measures, 0.0).clamp(-Z_LIMIT, Z_LIMIT)
        encoded: Tensor = self.net(torch.cat([known, there.to(known.dtype)], dim=-1))
        return encoded


class TextEncoder(nn.Module):
    """A BERT over the words of a report; equal sentences are encoded once.

    Args:
        name: "tiny" for two layers that are trained, or a BERT of the hub, which stays frozen and
            reads the same words in its own pieces.
        pretrained: Whether to fetch a BERT of the hub; else it has random weights, for tests.
        revision: Of the hub's repository.
        dim: Of the result.
    """

    pieces: Tensor

    def __init__(self, name: str, pretrained: bool, revision: str | None, dim: int) -> None:
        super().__init__()
        try:
            from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel
        except ImportError as error:
            raise missing_extra("transformers", "ecg") from error
        self.frozen = name != TINY
        words = [[i] for i in range(len(WORDS))]
        self.encoder: Any
        if name == TINY:
            config = BertConfig(vocab_size=len(WORDS), max_position_embeddings=32, **TINY_BERT)
            self.encoder = BertModel(config, add_pooling_layer=False)
        elif not pretrained:
            config = BertConfig(vocab_size=BERT_VOCABULARY)
            self.encoder = BertModel(config, add_pooling_layer=False)
        else:
            try:
                tokenizer: Any = AutoTokenizer.from_pretrained(name, revision=revision)
                self.encoder = AutoModel.from_pretrained(name, revision=revision)
            except (OSError, ValueError) as error:
                raise ZooError(f"text_encoder {name!r} cannot be fetched: {error}") from error
            special = [tokenizer.pad_token_id, tokenizer.cls_token_id]
            words = [[special[0]], [special[1]]] + [
                tokenizer.encode(word, add_special_tokens=False) for word in WORDS[2:]
            ]
        if self.frozen:
            self.encoder.requires_grad_(False).eval()
        width = max(map(len, words))
        table = [[*w, *[-1] * (width - len(w))] for w in words]
        # Of each word, -1 for padding. Not stored: it follows from the name.
        self.register_buffer("pieces", torch.tensor(table), persistent=False)
        self.project = nn.Linear(int(self.encoder.config.hidden_size), dim)
        self.norm = nn.LayerNorm(dim)

    def train(self, mode: bool = True) -> TextEncoder:
        """A frozen encoder stays in eval mode."""
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self

    def forward(self, ids: Tensor) -> Tensor:
        """Mean over the words. Shape: (..., L) gives (..., dim)."""
        unique, inverse = torch.unique(ids.reshape(-1, ids.shape[-1]), dim=0, return_inverse=True)
        tokens = self.pieces[unique]  # (U, L, pieces)
        there = (unique[..., None] > 0) & (tokens >= 0)
        tokens, there = tokens.flatten(1).clamp_min(0), there.flatten(1)
        there[:, 0] = True  # padding beats: BERT needs a word
        hidden = self.encoder(input_ids=tokens, attention_mask=there.long()).last_hidden_state
        weight = there[..., None].to(hidden.dtype)
        mean = (hidden * weight).sum(dim=1) / weight.sum(dim=1)
        encoded: Tensor = self.norm(self.project(mean))[inverse]
        return encoded.view(*ids.shape[:-1], -1)
