"""SEM-FAS as a LightningModule: is this a live face, why, and is the model to be trusted here?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics import MeanMetric

from zoo.errors import ZooError, did_you_mean
from zoo.face_files import CORRUPTIONS, KINDS, MODALITIES
from zoo.metrics import AUROC, RankCorrelation
from zoo.sem_fas.encoders import CNN
from zoo.sem_fas.head import EvidenceHead, FASOutput
from zoo.sem_fas.loss import budget_loss, diversity_loss, domain_loss, single_sensor_loss
from zoo.sem_fas.metrics import GroupMeans, Largest
from zoo.sem_fas.outliers import drop_modalities, make_outliers
from zoo.sem_fas.protocol import FaceAntiSpoofing
from zoo.sem_fas.result import PAIR_NAMES, UNCERTAINTIES

WEIGHTS = {"main": 0.5, "cov": 0.2, "bud": 0.5, "div": 0.05, "dom": 0.5, "oe": 0.3}
OUTLIERS = 16  # a batch
EFFECTS = tuple(f"phi_{name.replace('-', '_')}" for name in (*MODALITIES, *PAIR_NAMES))
PUBLIC = tuple(
    f.name for f in fields(FASOutput) if f.name not in ("overlaps", "psi", "cancelled", "states")
)


class SemFas(FaceAntiSpoofing):
    """Quantum-inspired evidence measurement for multimodal face anti-spoofing.

    Args:
        encoder: "cnn4", a small convolutional network for each sensor, or a vision transformer of
            timm, shared and frozen, with adapters. Real scale: "vit_base_patch16_224.augreg_in21k".
        pretrained: Fetch the transformer's weights; then they are not saved with the model's.
        encoder_options: Further arguments of the encoder.
        image_size: Side in pixels that ``predict`` resizes to. Real scale: 224.
        state_dim: d, of the states. Real scale: 64.
        n_heads: K. Real scale: 8.
        effect_rank: r, of the class effects.
        use_phase: Without phases sensors can only reinforce each other.
        budget: beta, share of the space that the classes may measure; the rest is for what is
            neither live nor a known attack.
        weights: Of the loss's terms, those that differ from main 0.5, cov 0.2, bud 0.5, div 0.05,
            dom 0.5 and oe 0.3.
        domains: Number of domains that a sample's ``domain`` may name.
        modality_dropout: Chance that training takes away rgb, depth and ir.
        threshold: Of p_live; ``None`` for those of the source validation data.

    Source: the abstract names normalised complex states, coherent
    heads, a density matrix, a constrained POVM-like measurement, main effects and synergies, and
    three single-pass uncertainties; what it leaves open is our choice.
    """

    def __init__(
        self,
        encoder: str = CNN,
        pretrained: bool = False,
        encoder_options: dict[str, Any] | None = None,
        image_size: int = 48,
        state_dim: int = 16,
        n_heads: int = 4,
        effect_rank: int = 4,
        use_phase: bool = True,
        budget: float = 0.35,
        weights: dict[str, float] | None = None,
        domains: int = 4,
        modality_dropout: tuple[float, float, float] = (0.1, 0.3, 0.3),
        threshold: float | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        for name, value, least in (
            ("state_dim", state_dim, 2),
            ("n_heads", n_heads, 1),
            ("effect_rank", effect_rank, 1),
        ):
            if value < least:
                raise ZooError(f"{name}={value} must be at least {least}.")
        if not 0 < budget <= 1:
            raise ZooError(f"budget={budget} is a share of the space: expected 0 < budget <= 1.")
        self.weights = _weights(weights or {})
        self.budget, self.domains = budget, domains
        self.setup_protocol(
            encoder,
            pretrained,
            encoder_options,
            image_size,
            modality_dropout,
            threshold,
            UNCERTAINTIES,
            **{f"u_cov_auroc_{name}": AUROC() for name in CORRUPTIONS},
            u_cov_auroc=AUROC(),
            u_mix_auroc=AUROC(),
            u_mix_spearman=RankCorrelation(),
            uncertainty=GroupMeans(["clean", "corrupted"], UNCERTAINTIES),
            effects=GroupMeans(KINDS, EFFECTS),
            inverted_depth_lowers_phi=MeanMetric(),
            decomposition_error=Largest(),
            cancelled=MeanMetric(),
        )
        self.head = EvidenceHead(
            self.encoders.out_features, state_dim, n_heads, effect_rank, use_phase
        )

    def decide(self, features: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """What :class:`~zoo.sem_fas.head.FASOutput` documents, by name."""
        out = self.head(features, mask)
        return {name: getattr(out, name) for name in PUBLIC}

    # -- training ----------------------------------------------------------------------------

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """Cross-entropy of the decision, and the six terms of :mod:`zoo.sem_fas.loss`."""
        label, w = batch["label"], self.weights
        images = {m: batch[m] for m in MODALITIES}
        mask = drop_modalities(batch["mask"], self.modality_dropout)
        count, seen = len(label), mask
        if w["oe"] > 0:
            odd, there = make_outliers(images, batch["mask"], OUTLIERS)
            images = {m: torch.cat([images[m], odd[m]]) for m in MODALITIES}
            seen = torch.cat([mask, there])
        features = self.encode(images, seen).float()
        out = self.head(features[:count], mask)
        loss: Tensor = -out.log_p.gather(1, label[:, None]).mean()
        if w["main"] > 0:
            alone = self.head.alone(out.states, features[:count])
            loss = loss + w["main"] * single_sensor_loss(alone, label, mask)
        loss = loss - w["cov"] * (1 - out.u_cov).clamp_min(1e-6).log().mean()
        loss = loss + w["bud"] * budget_loss(self.head.measurement.class_trace(), self.budget)
        loss = loss + w["div"] * diversity_loss(out.overlaps)
        if w["dom"] > 0:
            loss = loss + w["dom"] * domain_loss(
                out.psi, batch["domain"], label == 1, self.domains, self._over_ranks()
            )
        if w["oe"] > 0:
            outside = self.head(features[count:], seen[count:]).u_cov
            loss = loss - w["oe"] * outside.clamp_min(1e-6).log().mean()
        self.log("train_loss", loss, prog_bar=True, batch_size=count)
        return loss

    def _over_ranks(self) -> Any:
        """Adds up over the processes with gradients; ``None`` where there is one only."""
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return None
        return lambda x: cast("Tensor", self.all_gather(x, sync_grads=True)).sum(dim=0)

    def exportable(self) -> Any:
        """What ``zoo export`` writes."""
        from zoo.sem_fas.export import exportable

        return exportable(self)

    # -- test --------------------------------------------------------------------------------

    def test_more(
        self,
        batch: Mapping[str, Any],
        features: Tensor,
        mask: Tensor,
        outputs: Mapping[str, Tensor],
    ) -> None:
        """Effects by kind of attack, uncertainty on corrupted copies, and checks of the algebra."""
        metrics = self.test_metrics
        out = self.head(features, mask)
        effects = torch.cat([out.phi_main, out.phi_pair], dim=1)
        metrics["effects"].update(effects, batch["kind"])
        metrics["cancelled"].update(out.cancelled)
        measured = torch.einsum("bij,yji->by", out.rho, self.head.measurement.effects()[:2]).real
        parts = out.main.sum(dim=-1) + out.synergy.sum(dim=-1)
        metrics["decomposition_error"].update((measured - parts).abs())
        alone = self.head.alone(out.states, features.float())
        single = alone[..., 1] / alone.sum(dim=-1).clamp_min(1e-8)  # (B, 3)
        gaps = (single[:, [0, 0, 1]] - single[:, [1, 2, 2]]).abs().mean(dim=1)
        metrics["u_mix_spearman"].update(out.u_mix, gaps)
        metrics["uncertainty"].update(self.doubts(outputs), torch.zeros_like(batch["kind"]))
        if "corrupted" in batch:
            self._test_corrupted(batch, mask, out)

    def _test_corrupted(self, batch: Mapping[str, Any], mask: Tensor, clean: FASOutput) -> None:
        metrics = self.test_metrics
        new = torch.ones(len(mask), dtype=torch.long, device=mask.device)
        for name in ("u_cov_auroc", *(f"u_cov_auroc_{c}" for c in CORRUPTIONS)):
            metrics[name].update(clean.u_cov, 0 * new)
        metrics["u_mix_auroc"].update(clean.u_mix, 0 * new)
        for number, name in enumerate(CORRUPTIONS):
            images = {m: batch["corrupted"][m][:, number] for m in MODALITIES}
            out = self.head(self.encode(images, mask), mask)
            metrics["u_cov_auroc"].update(out.u_cov, new)
            metrics[f"u_cov_auroc_{name}"].update(out.u_cov, new)
            metrics["u_mix_auroc"].update(out.u_mix, new)
            doubts = torch.stack([out.u_amb, out.u_mix, out.u_cov], dim=1)
            metrics["uncertainty"].update(doubts, new)
            if name == "inverted_depth":
                lower = (out.phi_main < clean.phi_main)[mask[:, 1], 1]
                metrics["inverted_depth_lowers_phi"].update(lower.float())


def _weights(given: Mapping[str, float]) -> dict[str, float]:
    for name, value in given.items():
        if name not in WEIGHTS:
            known = ", ".join(WEIGHTS)
            raise ZooError(
                f"weights has no term '{name}', only {known}.{did_you_mean(name, WEIGHTS)}"
            )
        if value < 0:
            raise ZooError(f"weights['{name}']={value} must not be negative.")
    return {**WEIGHTS, **given}
