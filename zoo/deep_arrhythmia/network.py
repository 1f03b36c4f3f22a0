"""The integrator: beats as queries over signal and picture, with or without evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.deep_arrhythmia.encoders import (
    NONE,
    STRIDE,
    TINY,
    MeasureEncoder,
    SignalEncoder,
    TextEncoder,
    TinyImageEncoder,
    ViTImageEncoder,
    embed_time,
)
from zoo.ecg.beats import CLASSES
from zoo.ecg.strip import FS
from zoo.errors import ZooError

ROI_S = (-0.35, 0.55)  # of the signal around a beat that its query is made of
ROI_POINTS = 8
GATE_GAIN = 10.0  # gates start at 0, and would open only as far as the learning rate's steps reach
ALONE_S = 0.35  # around R that a beat sees where beats are isolated
TICK_ROWS = 7  # of a picture, with ticks and beat numbers
ALONE_COLUMNS = 16  # of a picture of 224: 0.71 s of 10 s


class Evidence(NamedTuple):
    """What Tools 2 and 3 found.

    Attributes:
        measures: Z-scores, NaN where not measurable. Shape: (B, n, 16).
        report_ids: Words. Shape: (B, n, L).
        rich: Of which segments; the others are decided without. Shape: (B,).
    """

    measures: Tensor
    report_ids: Tensor
    rich: Tensor


class Encoded(NamedTuple):
    """Segments (or isolated beats, M of them) as tokens, to decide on once or twice.

    Attributes:
        memory: What beats attend to. Shape: (M, S, dim).
        signal: The part of it from the signal, without times. Shape: (M, L, dim).
        peaks: In samples. Shape: (M, k).
        there: Which of them are beats. Shape: (M, k).
        mask: Of the segments. Shape: (B, n).
    """

    memory: Tensor
    signal: Tensor
    peaks: Tensor
    there: Tensor
    mask: Tensor

    def select(self, rows: Tensor) -> Encoded:
        """Some of the segments. Shape: (R,)."""
        if len(self.memory) == len(self.mask) and self.peaks.shape == self.mask.shape:
            return Encoded(*(t[rows] for t in self))
        owner = self.mask.nonzero()[:, 0]
        kept = torch.isin(owner, rows)
        memory, signal, peaks, there, mask = self
        return Encoded(memory[kept], signal[kept], peaks[kept], there[kept], mask[rows])


class BeatNetwork(nn.Module):
    """Classifies all beats of a segment together.

    Args:
        leads: C, 1 or 2; 0 for the picture alone.
        dim: Width of the tokens.
        layers: Of the integrator.
        image_backbone: "tiny", "none", or a vision transformer of timm.
        image_size: Height and width.
        image_pretrained: Whether to fetch the backbone's weights.
        text_encoder: "tiny", or a BERT of the hub.
        text_pretrained: Whether to fetch it.
        text_revision: Of its repository.
        context: Whether a beat sees its neighbours; else only +-0.35 s around its R peak.
        classes: How many.

    Raises:
        ZooError: If there is neither signal nor picture, or a backbone is unknown.
    """

    def __init__(
        self,
        leads: int = 1,
        dim: int = 96,
        layers: int = 2,
        image_backbone: str = TINY,
        image_size: Sequence[int] = (224, 224),
        image_pretrained: bool = False,
        text_encoder: str = TINY,
        text_pretrained: bool = True,
        text_revision: str | None = None,
        context: bool = True,
        classes: int = len(CLASSES),
    ) -> None:
        super().__init__()
        self.dim, self.context = dim, context
        if leads == 0 and image_backbone == NONE:
            raise ZooError("leads=0 and image_backbone='none' leave nothing to look at.")
        if not context and image_backbone not in (TINY, NONE):
            raise ZooError(
                "Isolated beats (context=False) go with image_backbone 'tiny' or 'none'."
            )
        self.signal = SignalEncoder(leads, dim) if leads else None
        self.image: TinyImageEncoder | ViTImageEncoder | None = None
        if image_backbone == TINY:
            self.image = TinyImageEncoder(image_size[0], dim)
        elif image_backbone != NONE:
            self.image = ViTImageEncoder(image_backbone, image_pretrained, image_size, dim)
        self.roi = nn.Linear(ROI_POINTS * dim, dim)
        self.state = nn.Embedding(2, dim)
        nn.init.zeros_(self.state.weight)  # the rich state starts as the minimal one
        self.measures = MeasureEncoder(dim)
        self.text = TextEncoder(text_encoder, text_pretrained, text_revision, dim)
        self.gates = nn.ParameterList(torch.zeros(dim) for _ in range(2))  # of measures, report
        layer = nn.TransformerDecoderLayer(
            dim, 4, 2 * dim, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.norm = nn.LayerNorm(dim)
        # None without layers: a plain network on the signal around each beat.
        self.integrator = nn.TransformerDecoder(layer, layers) if layers else None
        self.classify = nn.Linear(dim, classes)
        self.heat = nn.Linear(dim, 1)

    def encode(self, signal: Tensor, image: Tensor, peaks: Tensor, mask: Tensor) -> Encoded:
        """Turns segments into tokens; see :meth:`forward` for the shapes."""
        there = mask
        if not self.context:
            signal, image, peaks = isolate(signal, image, peaks, mask)
            there = torch.ones_like(peaks, dtype=torch.bool)
        seconds = signal.shape[-1] / FS
        memory, tokens = [], None
        if self.signal is not None:
            tokens = self.signal(signal)
            times = torch.arange(tokens.shape[1], device=signal.device) * (STRIDE / FS)
            memory.append(tokens + embed_time(times, self.dim))
        if self.image is not None:
            patches = self.image(image)
            columns = self.image.columns if isinstance(self.image, ViTImageEncoder) else 0
            columns = columns or patches.shape[1]
            places = torch.arange(patches.shape[1], device=image.device) % columns
            patches = patches + embed_time((places + 0.5) * (seconds / columns), self.dim)
            memory.append(patches)
            if tokens is None:  # queries are made of the picture's columns
                by_column = patches.unflatten(1, (-1, columns)).mean(dim=1)
                size = -(-signal.shape[-1] // STRIDE)
                tokens = F.interpolate(by_column.mT, size, mode="linear").mT
        assert tokens is not None
        return Encoded(torch.cat(memory, dim=1), tokens, peaks, there, mask)

    def decide(self, encoded: Encoded, evidence: Evidence | None = None) -> tuple[Tensor, Tensor]:
        """Classes and features of all beats.

        Args:
            encoded: The segments.
            evidence: Of Tools 2 and 3; ``None`` for the minimal state.

        Returns:
            Logits, shape (B, n, classes), and features, shape (B, n, dim); 0 in padding.
        """
        mask, there = encoded.mask, encoded.there
        queries = self._queries(encoded.signal, encoded.peaks)
        rich = torch.zeros(len(mask), dtype=torch.bool, device=mask.device)
        if evidence is not None:
            rich = evidence.rich
            measured = GATE_GAIN * self.gates[0] * self.measures(evidence.measures)
            told = GATE_GAIN * self.gates[1] * self.text(evidence.report_ids)
            extra = (measured + told) * rich[:, None, None]
            queries = queries + (extra if self.context else extra[mask][:, None])
        state = self.state(rich.long())[:, None]  # (B, 1, dim)
        state = state if self.context else state.expand(-1, mask.shape[1], -1)[mask][:, None]
        # A segment without beats attends to its first place, so that the softmax is defined.
        ignored = ~there
        ignored[:, 0] &= there.any(dim=1)
        features = queries + state
        if self.integrator is not None:
            features = self.integrator(features, encoded.memory, tgt_key_padding_mask=ignored)
        features = self.norm(features)
        if not self.context:
            spread = features.new_zeros(*mask.shape, self.dim)
            spread[mask] = features[:, 0]
            features = spread
        features = features * mask[..., None]
        return self.classify(features) * mask[..., None], features

    def heat_logits(self, encoded: Encoded) -> Tensor:
        """Whether an R peak lies in a token's 32 samples. Shape: (M, L)."""
        logits: Tensor = self.heat(encoded.signal)[..., 0]
        return logits

    def _queries(self, tokens: Tensor, peaks: Tensor) -> Tensor:
        """The signal around each R peak, interpolated, and the peak's time. Shape: (M, k, dim)."""
        reach = torch.linspace(*ROI_S, ROI_POINTS, device=peaks.device) * (FS / STRIDE)
        place = peaks[..., None] / STRIDE + reach  # (M, k, points)
        place = place.clamp(0, tokens.shape[1] - 1)
        low = place.floor().long().clamp_max(max(tokens.shape[1] - 2, 0))
        share = (place - low)[..., None].to(tokens.dtype)
        rows = torch.arange(len(tokens), device=peaks.device)[:, None, None]
        around = tokens[rows, low] * (1 - share) + tokens[rows, low + 1] * share
        queries: Tensor = self.roi(around.flatten(2)) + embed_time(peaks / FS, self.dim)
        return queries


def isolate(
    signal: Tensor, image: Tensor, peaks: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Cuts every beat out of its segment, so that nothing of its neighbours is left.

    Args:
        signal: Shape: (B, C, T).
        image: Shape: (B, 3, H, W).
        peaks: Shape: (B, n).
        mask: Which of them are there; M in all. Shape: (B, n).

    Returns:
        The signal at +-0.35 s, the columns of the picture there, and the
        peak's place. Shapes: (M, C, 176), (M, 3, H, 16), (M, 1).
    """
    rows = mask.nonzero()[:, 0]
    reach = round(ALONE_S * FS)
    at = peaks[mask][:, None] + torch.arange(-reach, reach, device=peaks.device)  # (M, 176)
    inside = (at >= 0) & (at < signal.shape[-1])
    windows = signal[rows[:, None], :, at.clamp(0, signal.shape[-1] - 1)].transpose(1, 2)
    windows = windows * inside[:, None]
    width = image.shape[-1]
    middle = peaks[mask] * width // signal.shape[-1]
    reach_columns = max(round(ALONE_COLUMNS / 2 * width / 224), 1)
    columns = middle[:, None] + torch.arange(-reach_columns, reach_columns, device=peaks.device)
    strips = image.permute(0, 3, 1, 2)[rows[:, None], columns.clamp(0, width - 1)]  # (M, w, 3, H)
    strips = strips.permute(0, 2, 3, 1)  # (M, 3, H, w)
    strips[:, :, :TICK_ROWS] = 1.0  # white over ticks and numbers, which count the neighbours
    return windows, strips, torch.full_like(peaks[mask][:, None], reach)


class ConfidenceHead(nn.Module):
    """How sure a segment's decision is, from its beats in the minimal state.

    Args:
        dim: Of the beats' features.
        hidden: Units.
    """

    def __init__(self, dim: int, hidden: int = 64) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(2 * dim + 3),
            nn.Linear(2 * dim + 3, hidden),
            nn.GELU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, features: Tensor, logits: Tensor, mask: Tensor) -> Tensor:
        """The logit of "every beat is right".

        Args:
            features: Shape: (B, n, dim).
            logits: Shape: (B, n, classes).
            mask: Shape: (B, n).

        Returns:
            Shape: (B,).
        """
        features, there = features.float(), mask[..., None]
        count = mask.sum(dim=1, keepdim=True).clamp_min(1)
        mean = (features * there).sum(dim=1) / count
        low = features.masked_fill(~there, torch.inf).amin(dim=1)
        low = torch.where(mask.any(dim=1, keepdim=True), low, 0.0)
        log_p = logits.float().log_softmax(dim=-1)
        entropy = -(log_p.exp() * log_p).sum(dim=-1) * mask
        margin = (log_p.exp().amax(dim=-1) * mask + ~mask).amin(dim=1, keepdim=True)
        summary = [entropy.sum(dim=1, keepdim=True) / count, entropy.amax(dim=1, keepdim=True)]
        logit: Tensor = self.net(torch.cat([mean, low, *summary, margin], dim=1))[:, 0]
        return logit
