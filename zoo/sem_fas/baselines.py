"""What SEM-FAS is compared with: plain fusion of the same features, and MC-dropout."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.errors import ZooError, did_you_mean
from zoo.face_files import MODALITIES
from zoo.metrics import AUROC
from zoo.sem_fas.encoders import CNN
from zoo.sem_fas.outliers import drop_modalities
from zoo.sem_fas.protocol import FaceAntiSpoofing

FUSIONS = ("concat", "late")
HIDDEN = 64  # of the classifier
AUX_WEIGHT = 0.5  # as SEM-FAS weighs its sensors alone
MC_PASSES = 10


class FASConcat(FaceAntiSpoofing):
    """Features of the sensors that are there, side by side, into a small classifier.

    Encoders, data, modality dropout and optimiser are those of :class:`~zoo.sem_fas.SemFas`.

    Args:
        encoder: As of SEM-FAS, and so are ``pretrained``, ``encoder_options``, ``image_size``,
            ``modality_dropout`` and ``threshold``.
        pretrained: See above.
        encoder_options: See above.
        image_size: See above.
        modality_dropout: See above.
        threshold: See above.
        fusion: "concat", or "late" for the mean of one logit of each sensor.
        aux: Train a logit of each sensor beside the fused one.
        dropout: Of features and hidden units; in MC-dropout it stays on.
    """

    def __init__(
        self,
        encoder: str = CNN,
        pretrained: bool = False,
        encoder_options: dict[str, Any] | None = None,
        image_size: int = 48,
        modality_dropout: tuple[float, float, float] = (0.1, 0.3, 0.3),
        threshold: float | None = None,
        fusion: str = "concat",
        aux: bool = False,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        if fusion not in FUSIONS:
            raise ZooError(
                f"fusion={fusion!r} is none of {', '.join(FUSIONS)}.{did_you_mean(fusion, FUSIONS)}"
            )
        self.setup_protocol(
            encoder,
            pretrained,
            encoder_options,
            image_size,
            modality_dropout,
            threshold,
            u_mc_error_auroc=AUROC(),
            auc_mc=AUROC(),
        )
        self.fusion, self.aux = fusion, aux
        features, count = self.encoders.out_features, len(MODALITIES)
        self.dropout = nn.Dropout(dropout)
        self.single = nn.ModuleList(
            nn.Linear(features, 1) for _ in range(count if aux or fusion == "late" else 0)
        )
        self.fuse = nn.Sequential(
            nn.Linear(count * features, HIDDEN),
            nn.SiLU(),
            nn.Dropout(dropout),
            nn.Linear(HIDDEN, 1),
        )
        if fusion == "late":
            self.fuse = nn.Sequential()

    def decide(self, features: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """``p_live`` and ``u_amb``, the entropy of the decision in bits. Shapes: (B,)."""
        p_live = self._logit(features, mask)[0].sigmoid()
        return {"p_live": p_live, "u_amb": _entropy(p_live)}

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """Cross-entropy of the decision, and of each sensor alone if asked for."""
        mask = drop_modalities(batch["mask"], self.modality_dropout)
        images = {m: batch[m] for m in MODALITIES}
        logit, single = self._logit(self.encode(images, mask), mask)
        target = batch["label"].float()
        loss = F.binary_cross_entropy_with_logits(logit, target)
        if self.aux:
            each = F.binary_cross_entropy_with_logits(
                single, target[:, None].expand_as(single), reduction="none"
            )
            loss = loss + AUX_WEIGHT * ((each * mask).sum(dim=1) / mask.sum(dim=1)).mean()
        self.log("train_loss", loss, prog_bar=True, batch_size=len(mask))
        return loss

    def sample(self, features: Tensor, mask: Tensor, passes: int = MC_PASSES) -> Tensor:
        """MC-dropout: p_live of several passes with dropout on. Shape: (passes, B).

        Dropout sits behind the encoders, so they need not run again: the cheapest MC-dropout there
        is. All passes are one batch.
        """
        modules = [m for m in self.modules() if isinstance(m, nn.Dropout)]
        before = [m.training for m in modules]
        for module in modules:
            module.train()
        wide = features.repeat(passes, 1, 1), mask.repeat(passes, 1)
        try:
            return self._logit(*wide)[0].sigmoid().view(passes, -1)
        finally:
            for module, training in zip(modules, before, strict=True):
                module.train(training)

    def test_more(
        self,
        batch: Mapping[str, Any],
        features: Tensor,
        mask: Tensor,
        outputs: Mapping[str, Tensor],
    ) -> None:
        """Error detection by the entropy of the mean of ten passes with dropout."""
        mean = self.sample(features, mask).mean(dim=0).float()
        truth = batch["label"]
        wrong = (outputs["p_live"] >= self.threshold_of(mask)) != (truth == 1)
        self.test_metrics["u_mc_error_auroc"].update(_entropy(mean), wrong.int())
        self.test_metrics["auc_mc"].update(mean, truth)

    def _logit(self, features: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The fused logit, (B,), and one of each sensor, (B, 3) or (B, 0)."""
        there = mask.to(features.dtype)
        kept = self.dropout(features) * there[..., None]
        single = torch.cat(
            [head(kept[:, i]) for i, head in enumerate(self.single)] or [there[:, :0]], dim=1
        )
        if self.fusion == "late":
            return (single * there).sum(dim=1) / there.sum(dim=1).clamp_min(1), single
        return self.fuse(kept.flatten(1))[:, 0], single


def _entropy(p: Tensor) -> Tensor:
    """Of a coin, in bits."""
    p = p.float().clamp(1e-7, 1 - 1e-7)
    return -(p * p.log() + (1 - p) * (1 - p).log()) / math.log(2)
