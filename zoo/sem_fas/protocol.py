"""What every face anti-spoofing model shares: encoders, thresholds, protocols, and its use."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import BinaryCalibrationError

from zoo.base import ZooModule
from zoo.depth_files import Source
from zoo.errors import ZooError
from zoo.face_files import CHANNELS, KINDS, MODALITIES, check_faces, read_face
from zoo.metrics import AUROC, HTER, EqualErrorRate
from zoo.sem_fas.encoders import CNN, build_encoders
from zoo.sem_fas.metrics import SourceCalibration
from zoo.sem_fas.result import UNCERTAINTIES, FASResult, results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The tested sets of sensors by name.
CONDITIONS = {
    "complete": (True, True, True),
    "no_depth": (True, False, True),
    "no_ir": (True, True, False),
    "rgb_only": (True, False, False),
}
MISSING = tuple(name for name in CONDITIONS if name != "complete")
ROWS = ("hter", "hter_target_eer", "auc", "ece")
SETS = 2 ** len(MODALITIES)  # a set of sensors is a number: rgb 1, depth 2, ir 4
SHOWN = 4  # captures in a figure


class FaceAntiSpoofing(ZooModule):
    """Base of SEM-FAS and of the baselines it is compared with.

    A subclass implements :meth:`decide` and ``training_step``. Thresholds and limits come from the
    source validation data after each epoch, one for each set of sensors, and are stored with the
    weights.

    Args:
        encoder: "cnn4", or a vision transformer of timm.
        pretrained: Fetch the transformer's weights, which stay frozen and are not saved.
        encoder_options: Further arguments of the encoder.
        image_size: Side in pixels that ``predict`` resizes to, and that the transformer takes.
        modality_dropout: Chance that training takes away rgb, depth and ir.
        threshold: Of p_live; ``None`` for those of the source validation data.
        uncertainties: Names of the uncertainties that :meth:`decide` gives.
        test_only: Further metrics of the test stage.
    """

    monitor: ClassVar[tuple[str, str]] = ("val_auc", "max")
    optimizer_config: Mapping[str, Any] = {
        "class_path": "torch.optim.AdamW",
        "init_args": {"lr": 4e-3, "weight_decay": 1e-2},
    }
    thresholds: Tensor
    limits: Tensor

    def setup_protocol(
        self,
        encoder: str,
        pretrained: bool,
        encoder_options: dict[str, Any] | None,
        image_size: int,
        modality_dropout: Sequence[float],
        threshold: float | None,
        uncertainties: tuple[str, ...] = UNCERTAINTIES[:1],
        **test_only: Any,
    ) -> None:
        """Builds what is shared; the arguments are those of the class."""
        if len(modality_dropout) != len(MODALITIES) or not all(
            0 <= rate < 1 for rate in modality_dropout
        ):
            raise ZooError(
                f"modality_dropout={list(modality_dropout)}: expected a chance below 1 for each "
                f"of {', '.join(MODALITIES)}."
            )
        if threshold is not None and not 0 <= threshold <= 1:
            raise ZooError(f"threshold={threshold} must lie in 0..1, as p_live does.")
        self.image_size = image_size
        self.modality_dropout = tuple(modality_dropout)
        self.fixed_threshold = threshold
        self.frozen_trunk = pretrained and encoder != CNN
        # A frozen trunk is no part of a checkpoint: it is fetched even where weights follow.
        self.encoders = build_encoders(encoder, pretrained, image_size, encoder_options)
        self.register_buffer("thresholds", torch.full((SETS,), 0.5))
        self.register_buffer("limits", torch.ones(SETS, len(uncertainties)))
        self.uncertainties = uncertainties
        self.calibration = SourceCalibration(SETS, len(uncertainties))
        columns = {
            f"{row}_{condition}": metric
            for condition in CONDITIONS
            for row, metric in zip(
                ROWS,
                (HTER(), EqualErrorRate(), AUROC(), BinaryCalibrationError(n_bins=15)),
                strict=True,
            )
        }
        self.measure(
            MetricCollection(
                {
                    "auc": AUROC(),
                    "auc_missing": AUROC(),
                    "eer": EqualErrorRate(),
                    **{name: MeanMetric() for name in uncertainties},
                },
                compute_groups=False,
            )
        )
        test = {**columns, "u_amb_error_auroc": AUROC(), **test_only}
        self.test_metrics = MetricCollection(test, prefix="test_", compute_groups=False)

    def frozen_modules(self) -> tuple[str, ...]:
        """The pretrained trunk, if there is one."""
        return ("encoders.trunk",) if self.frozen_trunk else ()

    # -- the pass ----------------------------------------------------------------------------

    @abstractmethod
    def decide(self, features: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """``p_live``, the uncertainties, and what else a method gives, from features.

        Args:
            features: Of the sensors. Shape: (B, 3, C).
            mask: Which sensors are there. Shape: (B, 3).
        """

    def forward(self, rgb: Tensor, depth: Tensor, ir: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Decides on a batch.

        Args:
            rgb: In 0..1. Shape: (B, 3, H, W).
            depth: In 0..1, near bright as in the training data, 0 in holes. Shape: (B, 1, H, W).
            ir: In 0..1. Shape: (B, 1, H, W).
            mask: Which sensors are there, bool; what the others hold is ignored. Shape: (B, 3).

        Returns:
            ``p_live``, (B,), and what else :meth:`decide` gives.

        Raises:
            ZooError: If sizes differ, values are out of range or NaN, or a sample has no sensor.
        """
        images = {"rgb": rgb, "depth": depth, "ir": ir}
        if not torch.compiler.is_compiling():
            check_faces(images, mask)
        return self.decide(self.encode(images, mask), mask)

    def encode(self, images: Mapping[str, Tensor], mask: Tensor) -> Tensor:
        """Features; a sensor that is not there is blanked, so that nothing of it is left.

        It is encoded all the same: no parameter is without a gradient if a batch lacks a sensor.
        """
        kept = {
            m: torch.where(mask[:, i].view(-1, 1, 1, 1), images[m], 0.0)
            for i, m in enumerate(MODALITIES)
        }
        features: Tensor = self.encoders(kept)
        return features

    def doubts(self, outputs: Mapping[str, Tensor]) -> Tensor:
        """The uncertainties. Shape: (B, U)."""
        return torch.stack([outputs[name].float() for name in self.uncertainties], dim=-1)

    def threshold_of(self, mask: Tensor) -> Tensor:
        """The threshold for each sample's sensors. Shape: (B, 3) gives (B,)."""
        if self.fixed_threshold is not None:
            return self.thresholds.new_full((len(mask),), self.fixed_threshold)
        return self.thresholds[_number(mask)]

    # -- training ----------------------------------------------------------------------------

    def on_fit_start(self) -> None:
        """Silences a warning: a frozen trunk is in eval mode on purpose."""
        if hasattr(self.encoders, "trunk"):
            warnings.filterwarnings("ignore", r"Found \d+ module\(s\) in eval mode")

    # -- validation and test -------------------------------------------------------------------

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Any]:
        """Encodes once, and decides with each set of sensors."""
        mask, label = batch["mask"], batch["label"]
        features = self.encode(batch, mask)
        scores = features.new_full((len(mask), SETS), torch.nan, dtype=torch.float)
        doubts = scores[..., None].repeat(1, 1, len(self.uncertainties))
        complete: dict[str, Any] = {}
        for number in range(1, SETS):
            sensors = torch.tensor([bool(number >> i & 1) for i in range(len(MODALITIES))])
            sensors = sensors.to(mask.device).expand_as(mask)
            out = self.decide(features, sensors)
            whole = (mask | ~sensors).all(dim=1)  # samples that have all of these sensors
            scores[whole, number] = out["p_live"][whole].float()
            doubts[whole, number] = self.doubts(out)[whole]
            row = tuple(sensors[0].tolist())
            if row == CONDITIONS["complete"]:
                self.val_metrics["auc"].update(out["p_live"][whole], label[whole])
                self.val_metrics["eer"].update(out["p_live"][whole], label[whole])
                for name in self.uncertainties:
                    self.val_metrics[name].update(out[name])
                complete = out
            elif row in CONDITIONS.values():
                self.val_metrics["auc_missing"].update(out["p_live"][whole], label[whole])
        self.calibration.update(scores, label, doubts)
        return complete

    def on_validation_epoch_end(self) -> None:
        """Logs the metrics, and stores thresholds and limits before the checkpoint is written."""
        super().on_validation_epoch_end()
        if self.calibration.update_called:
            thresholds, limits = self.calibration.compute()
            if self.trainer.state.fn == TrainerFn.FITTING and not self.trainer.sanity_checking:
                self.thresholds.copy_(thresholds)
                self.limits.copy_(limits)
            self.calibration.reset()

    def test_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Any]:
        """Decides under each of the batch's conditions; the sensors are encoded once."""
        features = self.encode(batch, batch["mask"])
        label = batch["label"]
        outputs: dict[str, Any] = {}
        names = {row: name for name, row in CONDITIONS.items()}
        for row in batch["conditions"][0]:
            name = names[tuple(row.tolist())]
            mask = batch["mask"] & row
            some = mask.any(dim=1)
            out = self.decide(features, mask)
            score, truth = out["p_live"][some].float(), label[some]
            threshold = self.threshold_of(mask)[some]
            self.test_metrics[f"hter_{name}"].update(score, truth, threshold)
            for metric in ROWS[1:]:
                self.test_metrics[f"{metric}_{name}"].update(score, truth)
            if name == "complete":
                wrong = (score >= threshold) != (truth == 1)
                self.test_metrics["u_amb_error_auroc"].update(out["u_amb"][some], wrong.int())
                outputs = out
                self.test_more(batch, features, mask, out)
        return outputs

    def test_more(
        self,
        batch: Mapping[str, Any],
        features: Tensor,
        mask: Tensor,
        outputs: Mapping[str, Tensor],
    ) -> None:
        """Updates the metrics of one method, under the complete condition."""

    def on_test_epoch_end(self) -> None:
        """Logs the metrics that the protocol updated, and means over the missing conditions."""
        values: dict[str, Tensor] = {}
        for name, metric in self.test_metrics.items():
            if metric.update_called:
                value = metric.compute()
                parts = value if isinstance(value, dict) else {name: value}
                values |= {k if k == name else f"test_{k}": v for k, v in parts.items()}
                metric.reset()
        for row in ROWS:
            missing = [values[key] for c in MISSING if (key := f"test_{row}_{c}") in values]
            if missing:
                values[f"test_{row}_missing"] = torch.stack(missing).mean()
        self.log_dict(values)

    # -- use ---------------------------------------------------------------------------------

    def results(self, names: Sequence[str], mask: Tensor, outputs: Any) -> list[FASResult]:
        """Decisions of a batch, with names in place of positions."""
        found = self.threshold_of(mask), self.limits[_number(mask)]
        return results(list(names), outputs, mask, *found)

    def predict_step(self, batch: Mapping[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """The decision on each capture, by name."""
        outputs = self(*(batch[m] for m in MODALITIES), batch["mask"])
        found = self.results(batch["name"], batch["mask"], outputs)
        return [{"name": one.name, "decision": one.decision, "result": one} for one in found]

    def write_prediction(self, prediction: Mapping[str, Any], path: Path) -> list[Path]:
        """Writes ``<name>.json`` with decision and reasons, and ``<name>.png`` with the effects."""
        result: FASResult = prediction["result"]
        return result.save(path)

    def predict(
        self, rgb: Source | None = None, depth: Source | None = None, ir: Source | None = None
    ) -> FASResult:
        """Decides on one capture: is this a live face or an attack?

        Args:
            rgb: Path, PIL image or array of the face crop in colour, any size, 8 or 16 bits;
                ``None`` if there is no such sensor.
            depth: The same of the depth sensor, near bright as in the training data, 0 in holes.
            ir: The same of the infrared camera.

        Returns:
            Decision, reasons and uncertainties; ``print(model.explain_text(result))``.

        Raises:
            ZooError: If all three are missing, or one is unreadable.
        """
        given = {"rgb": rgb, "depth": depth, "ir": ir}
        if all(source is None for source in given.values()):
            raise ZooError("predict needs at least one of rgb, depth and ir; all are None.")
        size = self.image_size
        images = {
            m: torch.zeros(CHANNELS[m], size, size)
            if source is None
            else read_face(source, m, size)
            for m, source in given.items()
        }
        mask = torch.tensor([[source is not None for source in given.values()]])
        with self.evaluating():
            inputs = [images[m][None].to(self.device) for m in MODALITIES]
            outputs = self(*inputs, mask.to(self.device))
        names = [str(s) for s in given.values() if isinstance(s, str | Path)]
        return self.results([Path(names[0]).stem if names else "capture"], mask, outputs)[0]

    def explain_text(self, result: FASResult) -> str:
        """The reasons for a decision in words."""
        return result.explain()

    def example_inputs(self) -> dict[str, Tensor]:
        """Two captures: a ramp with all sensors, and one without infrared."""
        size = self.image_size
        ramp = torch.linspace(0, 1, size).expand(2, 1, size, size)
        steps = (ramp * 4).round() / 4
        return {
            "rgb": torch.cat([ramp, steps, 1 - ramp], dim=1),
            "depth": ramp.mT.contiguous(),
            "ir": steps.contiguous(),
            "mask": torch.tensor([[True, True, True], [True, True, False]]),
        }

    def figures(self, batch: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Figure]:
        """Up to four captures of different kinds, and what each sensor added to the decision."""
        from zoo.sem_fas.figure import captures

        kind = batch["kind"].cpu()
        firsts = [int((kind == k).nonzero()[0]) for k in kind.unique()]
        rest = [i for i in range(len(kind)) if i not in firsts]
        chosen = torch.tensor((firsts + rest)[:SHOWN]).sort().values.to(batch["kind"].device)
        rows = {k: v[chosen] for k, v in outputs.items() if v.shape[:1] == batch["kind"].shape}
        names = [batch["name"][i] for i in chosen]
        found = self.results(names, batch["mask"][chosen], rows)
        images = {m: batch[m][chosen] for m in MODALITIES}
        return {"effects": captures(images, found, [KINDS[kind[i]] for i in chosen.cpu()])}


def _number(mask: Tensor) -> Tensor:
    """A set of sensors as a number. Shape: (B, 3) gives (B,)."""
    bits = torch.tensor([1, 2, 4], device=mask.device)
    return (mask * bits).sum(dim=1)
