"""DegradeQuery as a LightningModule: will this molecule degrade this target by this E3 ligase?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MetricCollection

from zoo.degrade_query.encoders import Encoded
from zoo.degrade_query.metrics import (
    GroupAUROC,
    Temperature,
    WeightedMean,
    binary_metrics,
)
from zoo.degrade_query.network import MOLECULE, DegradeQueryNet
from zoo.degrade_query.questions import Questions
from zoo.degrade_query.result import write_table
from zoo.degrade_query.swaps import (
    KIND_WEIGHTS,
    KINDS,
    POWER,
    SCALE_WEIGHT,
    draw_swaps,
    info_nce,
    is_observed,
    target_weights,
    unit_scale,
)
from zoo.degrade_query.vocabulary import Vocabulary
from zoo.errors import ZooError, check_choice
from zoo.language_features import LanguageModel
from zoo.molecules import FINGERPRINT_BITS
from zoo.proteins import unpack_names
from zoo.stages import Stage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRETRAIN_LR, WEIGHT_DECAY = 1e-3, 1e-2
LAST_SHARE = 0.02  # of the learning rate is left at the end of fine-tuning
PATIENCE = 3  # validations of pretraining without a better swap accuracy


class DegradeQuery(Questions):
    """Tuple-conditioned prediction of degradation, pretrained on counterfactual tuples.

    Training has two stages in one fit. First the network learns, without labels, to tell the
    recorded tuple (molecule, target, E3) from tuples with another target, another ligase or both;
    that ends early when the accuracy on tuples of validation no longer rises. Then its encoders are
    fine-tuned on the labels below a fusion of their own, and a temperature is fitted to those of
    validation.

    Args:
        dim: d. Real scale: 256.
        gnn_layers: Of message passing. Real scale: 6.
        gnn_dim: Width of messages. Real scale: 256.
        molecule: "both", "fingerprint" or "graph".
        protein_dim: P, of the proteins' features.
        max_proteins: Targets and ligases that the vocabulary has room for.
        swaps: Kinds of counterfactuals: "target", "e3", "both".
        negatives: K, target swaps and double swaps of each tuple.
        hard_fraction: Of the target swaps that are drawn from the nearest fifth of the targets.
        pretrain_steps: Most optimiser steps of the first stage; 0 for none, the baseline.
        finetune_steps: Of the second stage.
        bit_dropout: Chance of a fingerprint bin to be silent in training.
        dropout: Of all else.
        context: Look at target and ligase; without, what is left is the molecule alone.
        potency_weight: Of a regression of pDC50 and Dmax, where the table has them; 0 for none.
        smiles_model: A frozen language model whose features of the SMILES are added to the
            molecule; the data module must name the same. ``None`` for none.
        protein_model: The one that made the proteins' features, for ``predict(sequence=...)``.

    Source: the paper's abstract; see :mod:`zoo.degrade_query.network`.
    """

    monitor: ClassVar[tuple[str, str]] = ("val_auroc", "max")
    optimizer_config: Mapping[str, Any] = {
        "class_path": "torch.optim.AdamW",
        "init_args": {"lr": 2e-4, "weight_decay": WEIGHT_DECAY},
    }

    def __init__(
        self,
        dim: int = 128,
        gnn_layers: int = 2,
        gnn_dim: int = 48,
        molecule: str = "both",
        protein_dim: int = 64,
        max_proteins: int = 512,
        swaps: Sequence[str] = KINDS,
        negatives: int = 4,
        hard_fraction: float = 0.5,
        pretrain_steps: int = 636,
        finetune_steps: int = 212,
        bit_dropout: float = 0.2,
        dropout: float = 0.2,
        context: bool = True,
        potency_weight: float = 0.0,
        smiles_model: LanguageModel | None = None,
        protein_model: LanguageModel | None = None,
    ) -> None:
        super().__init__()
        check_choice("molecule", molecule, MOLECULE)
        swaps = list(swaps)
        for kind in swaps:
            check_choice("swaps", kind, KINDS)
        if pretrain_steps and not context:
            raise ZooError("context=False has nothing to swap: set pretrain_steps=0.")
        if pretrain_steps and not swaps:
            raise ZooError("swaps is empty: name some, or set pretrain_steps=0.")
        for name, value in (("negatives", negatives), ("finetune_steps", finetune_steps)):
            if value < 1:
                raise ZooError(f"{name}={value} must be at least 1.")
        if dim % 4:
            raise ZooError(f"dim={dim} must be a multiple of 4, the heads of attention.")
        if not 0 <= hard_fraction <= 1:
            raise ZooError(f"hard_fraction={hard_fraction} must lie in 0..1.")
        self.save_hyperparameters()
        self.kinds, self.negatives, self.hard_fraction = swaps, negatives, hard_fraction
        self.potency_weight = potency_weight
        self.smiles_model, self.protein_model = smiles_model, protein_model
        if protein_model is not None and protein_model.width != protein_dim:
            raise ZooError(
                f"protein_model makes {protein_model.width} features, but protein_dim is "
                f"{protein_dim}."
            )
        self.vocabulary = Vocabulary(max_proteins, protein_dim)
        self.network = DegradeQueryNet(
            dim=dim,
            gnn_layers=gnn_layers,
            gnn_dim=gnn_dim,
            molecule=molecule,
            protein_dim=protein_dim,
            proteins=max_proteins,
            language=smiles_model.width if smiles_model is not None else 0,
            context=context,
            bit_dropout=bit_dropout,
            dropout=dropout,
            potency=potency_weight > 0,
        )
        self.register_buffer("temperature", torch.ones(()))
        self.temperature_of_val = Temperature()
        self._weights: tuple[Tensor, Tensor] | None = None
        # Each stage trains the encoders, with the fusion and the heads of its own question.
        heads: dict[str, tuple[str, ...]] = {
            "pretrain": ("tuple", "degradation", "potency"),
            "finetune": ("matching", "compatibility"),
        }
        trained = {
            stage: [f"network.{n}" for n, _ in self.network.named_children() if n not in others]
            for stage, others in heads.items()
        }
        adam = {
            "class_path": "torch.optim.AdamW",
            "init_args": {"lr": PRETRAIN_LR, "weight_decay": WEIGHT_DECAY},
        }
        constant = {
            "class_path": "torch.optim.lr_scheduler.ConstantLR",
            "init_args": {"factor": 1.0},
        }
        self.lr_scheduler_config = {
            "class_path": "torch.optim.lr_scheduler.LinearLR",
            "init_args": {
                "start_factor": 1.0,
                "end_factor": LAST_SHARE,
                "total_iters": finetune_steps,
            },
            "interval": "step",
        }
        first = Stage(
            "pretrain",
            trained["pretrain"],
            pretrain_steps,
            adam,
            constant,
            stop=("val_swap_target", "max", PATIENCE),
        )
        last = Stage("finetune", trained["finetune"], finetune_steps)
        self.training_stages = (first, last) if pretrain_steps else (last,)
        self.measure(
            MetricCollection(
                {
                    **binary_metrics(),
                    "swap_target": WeightedMean(),
                    "swap_e3": WeightedMean(),
                },
                compute_groups=False,
            ),
            target_auroc=GroupAUROC(),
            several_auroc=GroupAUROC(least=2),
            target_mrr=WeightedMean(),
        )

    # -- inference ---------------------------------------------------------------------------

    def forward(
        self,
        fp: Tensor,
        atoms: Tensor,
        bonds: Tensor,
        ptr: Tensor,
        target: Tensor,
        e3: Tensor,
        target_feat: Tensor,
        e3_feat: Tensor,
        language: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Judges B tuples.

        Args:
            fp: log(1 + count) of fingerprint bins. Shape: (B, 2215).
            atoms: Categories of all atoms, see :mod:`zoo.molecules`. Shape: (N, 8).
            bonds: Sender, receiver, kind, both directions. Shape: (E, 3).
            ptr: Molecule i has the atoms ``ptr[i]`` to ``ptr[i + 1]``. Shape: (B + 1,).
            target: Row of the vocabulary, 0 if unknown. Shape: (B,).
            e3: The same of the ligase. Shape: (B,).
            target_feat: Raw features, zeros if there are none. Shape: (B, P).
            e3_feat: The same of the ligase. Shape: (B, P).
            language: Of ``smiles_model``. Shape: (B, L).

        Returns:
            ``logit`` of high degradation, calibrated, (B,); ``compatibility``, -1..1, (B,);
            ``attention`` of target's and ligase's side over the atoms, which sums to 1, (B, 2, A);
            ``repr``, (B, d).
        """
        molecule = self._encode(
            {"fp": fp, "atoms": atoms, "bonds": bonds, "ptr": ptr, "language": language}
        )
        pair = target[:, None], e3[:, None], target_feat[:, None], e3_feat[:, None]
        found = self._answer(molecule, *pair)
        return {name: value[:, 0] for name, value in found._asdict().items()}

    def _pair(
        self, target: Tensor, e3: Tensor, given: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What :meth:`_answer` asks for, of rows (B, S) of the data's proteins."""
        own, features = self.vocabulary.own(given), given["features"]
        return own[target], own[e3], features[target], features[e3]

    # -- training ----------------------------------------------------------------------------

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """The loss of the current stage."""
        if not self.vocabulary.fitted:
            self.vocabulary.fit(batch["vocabulary"])
        pretrain = self.stage.name == "pretrain"
        part = batch["unlabelled" if pretrain else "labelled"]
        molecule = self._encode(part)
        loss = (self._pretrain_loss if pretrain else self._finetune_loss)(molecule, part, batch)
        self.log("train_loss", loss, prog_bar=True, batch_size=len(part["fp"]))
        return loss

    def _pretrain_loss(
        self, molecule: Encoded, part: Mapping[str, Tensor], batch: Mapping[str, Any]
    ) -> Tensor:
        """InfoNCE of each kind of swap. The molecules are encoded once for all of their swaps."""
        given, observed = batch["vocabulary"], batch["observed"]
        target, e3 = part["target"], part["e3"]
        if self._weights is None or not torch.equal(self._weights[0], given["target_count"]):
            weights = target_weights(given["target_count"], given["features"], self.hard_fraction)
            self._weights = given["target_count"], weights
        drawn = [
            draw_swaps(
                kind,
                part["molecule"],
                target,
                e3,
                self._weights[1],
                given["e3_count"],
                observed,
                self.negatives,
            )
            for kind in self.kinds
        ]
        targets = torch.cat([target[:, None], *(swap.target for swap in drawn)], dim=1)
        ligases = torch.cat([e3[:, None], *(swap.e3 for swap in drawn)], dim=1)
        r = self._match(molecule, *self._pair(targets, ligases, given))
        scores = self.network.compatibility(r)  # (B, 1 + all swaps)
        temperature = self.network.compatibility.temperature()
        positive, negatives = scores[:, 0], scores[:, 1:]
        loss = SCALE_WEIGHT * unit_scale(r.float())
        for kind, swap in zip(self.kinds, drawn, strict=True):
            wide = swap.valid.shape[1]
            negative, negatives = negatives[:, :wide], negatives[:, wide:]
            term = info_nce(positive, negative, swap.valid, temperature)
            loss = loss + KIND_WEIGHTS[kind] * term
            won = (positive[:, None] > negative) | ~swap.valid
            self.log(f"train_swap_{kind}", won.all(dim=1).float().mean(), batch_size=len(won))
        return loss

    def _finetune_loss(
        self, molecule: Encoded, part: Mapping[str, Tensor], batch: Mapping[str, Any]
    ) -> Tensor:
        """Cross-entropy in which both classes weigh the same, and potency where it is known."""
        target, e3 = part["target"][:, None], part["e3"][:, None]
        r = self._fuse(molecule, *self._pair(target, e3, batch["vocabulary"]))[0][:, 0]
        logit = self.network.degradation(r)[:, 0]
        weight = self.vocabulary.balance().to(logit.dtype)
        loss = F.binary_cross_entropy_with_logits(
            logit, part["label"].to(logit.dtype), pos_weight=weight
        )
        if self.network.potency is not None:
            truth = part["potency"]
            known = truth.isfinite()
            error = (self.network.potency(r) - truth.nan_to_num()).square() * known
            loss = loss + self.potency_weight * error.sum() / known.sum().clamp_min(1)
        return loss

    # -- evaluation --------------------------------------------------------------------------

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Any]:
        """Updates the metrics, and the temperature."""
        if not self.vocabulary.fitted and not self.trainer.sanity_checking:
            self.vocabulary.fit(batch["vocabulary"])
        out = self._evaluate(batch, self.val_metrics)
        raw = out["logit"] * self.temperature
        self.temperature_of_val.update(raw, batch["tuples"]["label"])
        return out

    def on_validation_epoch_end(self) -> None:
        """Stores the temperature, before a checkpoint is written, and logs."""
        if not self.trainer.sanity_checking:
            self.temperature.copy_(self.temperature_of_val.compute())
        self.temperature_of_val.reset()
        super().on_validation_epoch_end()

    def test_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Any]:
        """Updates the metrics."""
        return self._evaluate(batch, self.test_metrics)

    def _evaluate(self, batch: Mapping[str, Any], metrics: MetricCollection) -> dict[str, Any]:
        part, given = batch["tuples"], batch["vocabulary"]
        molecule = self._encode(part)
        target, e3, label = part["target"], part["e3"], part["label"]
        pair = self._pair(target[:, None], e3[:, None], given)
        found = self._answer(molecule, *pair)
        logit, score = found.logit[:, 0], found.compatibility[:, 0]
        probability = logit.sigmoid()
        ranks = self._swap_ranks(molecule, score, part, batch)
        several = part["several"]
        for name, metric in metrics.items(keep_base=False):
            kind = name.removeprefix("val_").removeprefix("test_")
            if kind in ranks:
                metric.update(*ranks[kind])
            elif kind == "target_auroc":
                metric.update(probability, label, target)
            elif kind == "several_auroc":
                metric.update(probability[several], label[several], several[several].long())
            else:
                metric.update(probability, label)
        return {
            "logit": logit,
            "probability": probability,
            "compatibility": score,
            "attention": found.attention[:, 0],
        }

    def _swap_ranks(
        self,
        molecule: Encoded,
        score: Tensor,
        part: Mapping[str, Tensor],
        batch: Mapping[str, Any],
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """How the recorded tuple compares with all swaps that are not recorded.

        Nothing is drawn, so that devices and batches do not change it: swaps count with the
        frequency that pretraining draws them with.

        Returns:
            By metric, a value and a weight of each tuple. Shapes: (B,).
        """
        given, count = batch["vocabulary"], len(batch["vocabulary"]["names"])
        target, e3 = part["target"], part["e3"]
        found = {}
        for kind in ("target", "e3"):
            frequency = given[f"{kind}_count"]
            rows = frequency.nonzero()[:, 0]  # (S,)
            swapped = rows.expand(len(target), -1)
            other = (e3 if kind == "target" else target)[:, None].expand_as(swapped)
            targets, ligases = (swapped, other) if kind == "target" else (other, swapped)
            rivals = self._match(molecule, *self._pair(targets, ligases, given))
            rival = self.network.compatibility(rivals)
            recorded = is_observed(
                part["molecule"][:, None], targets, ligases, batch["observed"], count
            )
            own = swapped == part[kind][:, None]
            weight = frequency[rows].double().pow(POWER) * ~(recorded | own)  # (B, S)
            total = weight.sum(dim=1)
            # A tie is half a victory: without context, all tuples of a molecule tie.
            won = 0.5 * (1 + (score[:, None] - rival).sign())
            lower = (weight * won).sum(dim=1) / total.clamp_min(1e-12)
            found[f"swap_{kind}"] = lower, (total > 0).double()
            if kind == "target":
                higher = ((1 - won) * (weight > 0)).sum(dim=1)
                found["target_mrr"] = 1 / (1 + higher), torch.ones_like(total)
        return found

    # -- use ---------------------------------------------------------------------------------

    def predict_step(self, batch: Mapping[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """Probability and compatibility of each row of a file."""
        part, given = batch["tuples"], batch["vocabulary"]
        molecule = self._encode(part)
        target, e3 = part["target"], part["e3"]
        pair = self._pair(target[:, None], e3[:, None], given)
        found = self._answer(molecule, *pair)
        logit, score = found.logit[:, 0], found.compatibility[:, 0]
        names, own = unpack_names(given["names"]), self.vocabulary.own(given)
        return [
            {
                "name": batch["name"],
                "smiles": batch["smiles"],
                "target_uniprot": [names[i] for i in target.tolist()],
                "e3_type": [names[i] for i in e3.tolist()],
                "probability": logit.sigmoid().cpu(),
                "compatibility": score.float().cpu(),
                "labels_of_target": self.vocabulary.labels[own[target]].cpu(),
            }
        ]

    def write_prediction(self, prediction: Mapping[str, Any], path: Path) -> list[Path]:
        """Writes ``<name>.csv``: the file's tuples with probability, and how sure to be of it."""
        return [write_table(prediction, path.with_name(f"{path.name}.csv"))]

    def example_inputs(self) -> dict[str, Tensor]:
        """Two made-up molecules of three and two atoms, with two targets and two ligases."""
        generator = torch.Generator().manual_seed(0)
        width = self.vocabulary.features.shape[1]
        return {
            "fp": (torch.rand(2, FINGERPRINT_BITS, generator=generator) < 0.05).float(),
            "atoms": torch.tensor([[1, 1, 2, 3, 3, 0, 0, 0]] * 5),
            "bonds": torch.tensor(
                [[0, 1, 0], [1, 2, 1], [3, 4, 0], [1, 0, 0], [2, 1, 1], [4, 3, 0]]
            ),
            "ptr": torch.tensor([0, 3, 5]),
            "target": torch.tensor([1, 0]),
            "e3": torch.tensor([2, 3]),
            "target_feat": torch.randn(2, width, generator=generator),
            "e3_feat": torch.randn(2, width, generator=generator),
        }

    def figures(self, batch: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Figure]:
        """Attention on the first molecule, ROC of the batch, and the ranking of targets."""
        from zoo.degrade_query.figure import draw

        return draw(self, batch, outputs)
