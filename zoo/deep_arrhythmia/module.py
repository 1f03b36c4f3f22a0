"""DeepArrhythmia: beat classes from segments, and expensive evidence only where it is needed.

Reference:
    "DeepArrhythmia", arXiv 2605.16441, known by its abstract and a third-party table of results.
    Its agent is built round a language model; this is a network with the same tools and states, so
    everything but the parts that the abstract names is our choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import MetricCollection

from zoo.base import ZooModule
from zoo.deep_arrhythmia import routing
from zoo.deep_arrhythmia.encoders import NONE, STRIDE, TINY
from zoo.deep_arrhythmia.loss import class_weights, focal_loss, heat_loss
from zoo.deep_arrhythmia.measures import MEASURES, MeasureTool
from zoo.deep_arrhythmia.network import BeatNetwork, ConfidenceHead, Encoded, Evidence
from zoo.deep_arrhythmia.report import LENGTH, ReportTool, to_ids
from zoo.deep_arrhythmia.result import Beats, beats_of, cut_record
from zoo.ecg.beats import CLASSES
from zoo.ecg.inputs import network_inputs
from zoo.ecg.peaks import METHODS, RPeakTool
from zoo.ecg.records import Source, read_record
from zoo.ecg.strip import FS, Segment, Strip, prepare
from zoo.errors import ZooError, check_choice
from zoo.stages import Stage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EVIDENCE = ("route", "minimal", "rich")
TARGETS = ("right", "no_gain")
REPORTS = ("template", "vlm")
HEAT_WEIGHT = 0.2
STATISTICS_BATCHES = 10  # of training that the measures are scaled by
MIN_SPREAD = 1e-3
ANNOTATE_BATCH = 32  # segments

Batch = Mapping[str, Any]


class DeepArrhythmia(ZooModule):
    """Which AAMI class each beat of a record is, on what evidence.

    Training has two stages in one ``fit``. "evidence": the network, on segments that are in the
    minimal or the rich state by chance, mixed in each batch. "confidence": the head that says
    whether the minimal state has every beat of a segment right, on patients whom the network has
    not seen. Temperatures and the threshold below which a segment takes the rich state come from
    validation and are stored with the weights.

    Args:
        leads: 1 or 2; 0 for the picture without the signal.
        seconds: Of a segment.
        dim: Width of the tokens, a multiple of 4.
        layers: Of the integrator; 0 for a plain convolutional network on each beat.
        image_backbone: "tiny", a vision transformer of timm, or "none".
        image_size: Height and width of the picture, pixels.
        text_encoder: "tiny", or a BERT of the hub, which stays frozen.
        text_revision: Of its repository.
        pretrained: Whether to fetch the weights of the backbones that are named.
        report: Tool 3: "template", or "vlm" for a vision-language model of transformers.
        vlm: Its id on the hub.
        rpeaks: Tool 1 in :meth:`annotate`: "xqrs", "neurokit" or "annotation".
        context: Whether a beat sees its neighbours.
        tau: Segments with a confidence of at least this stay in the minimal state; ``None`` to
            choose it on validation. 0 never asks for evidence.
        evidence: "route", or one state for all: "minimal" or "rich".
        cost: What evidence for all segments must add to macro-F1 to be worth it.
        focal_gamma: Of the focal loss.
        confidence_target: "right": every beat is right. "no_gain": the rich state has no
            more right.
        steps: Optimiser steps of the first stage.
        confidence_steps: Of the second; ``None`` to the end of training.

    Raises:
        ZooError: For an option that is unknown or does not go with the others.
    """

    monitor = ("val_objective", "max")

    center: Tensor
    spread: Tensor
    class_counts: Tensor
    temperatures: Tensor
    threshold: Tensor
    curve: Tensor

    def __init__(
        self,
        leads: int = 1,
        seconds: float = 10.0,
        dim: int = 96,
        layers: int = 2,
        image_backbone: str = TINY,
        image_size: list[int] | None = None,
        text_encoder: str = TINY,
        text_revision: str | None = None,
        pretrained: bool = True,
        report: str = "template",
        vlm: str = "Qwen/Qwen2.5-VL-3B-Instruct",
        rpeaks: str = "xqrs",
        context: bool = True,
        tau: float | None = None,
        evidence: str = "route",
        cost: float = 0.02,
        focal_gamma: float = 2.0,
        confidence_target: str = "right",
        steps: int = 240,
        confidence_steps: int | None = 60,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        check_choice("report", report, REPORTS)
        check_choice("rpeaks", rpeaks, METHODS)
        check_choice("evidence", evidence, EVIDENCE)
        check_choice("confidence_target", confidence_target, TARGETS)
        if leads not in (0, 1, 2) or dim % 4 or seconds < 5:
            raise ZooError(
                f"leads={leads} must be 0, 1 or 2, dim={dim} a multiple of 4, and "
                f"seconds={seconds:g} at least 5."
            )
        self.leads, self.size = leads, int(seconds * FS)
        self.image_size = list(image_size or [224, 224])
        self.evidence, self.cost, self.tau = evidence, cost, tau
        self.focal_gamma, self.confidence_target = focal_gamma, confidence_target
        fetched = image_backbone not in (TINY, NONE) and self.fetch_weights(pretrained)
        self.backbone = BeatNetwork(
            leads,
            dim,
            layers,
            image_backbone,
            self.image_size,
            fetched,
            text_encoder,
            pretrained,  # frozen, so in no checkpoint: fetched again
            text_revision,
            context,
        )
        self.confidence = ConfidenceHead(dim)
        count = len(MEASURES)
        self.register_buffer("center", torch.zeros(count))
        self.register_buffer("spread", torch.zeros(count))  # 0: not measured yet
        self.register_buffer("class_counts", torch.ones(len(CLASSES)))
        self.register_buffer("temperatures", torch.ones(2))
        self.register_buffer("threshold", torch.tensor(0.5 if tau is None else tau))
        # Macro-F1 on validation over the share of rich segments: by confidence, and at random.
        self.register_buffer("curve", torch.zeros(2, len(routing.SHARES)))
        self.peak_tool, self.measure_tool = RPeakTool(rpeaks), MeasureTool()
        self.report_tool: Any = ReportTool()
        if report == "vlm":
            from zoo.deep_arrhythmia.vlm import VlmReport

            self.report_tool = VlmReport(vlm)
        self.measure(MetricCollection({"rows": routing.RowTable()}))
        trained = ["backbone"]
        if self.frozen_modules() or text_encoder != TINY:
            parts = [n for n, _ in self.backbone.named_children() if n != "text"]
            trained = [f"backbone.{n}" for n in (*parts, "text.project", "text.norm")]
        self.training_stages = (
            Stage("evidence", trained, steps),
            Stage("confidence", ["confidence"], confidence_steps),
        )

    def frozen_modules(self) -> tuple[str, ...]:
        """A text encoder of the hub; one with random weights, for tests, is saved."""
        named = self.hparams["text_encoder"] != TINY and self.hparams["pretrained"]
        return ("backbone.text.encoder",) if named else ()

    # -- network -----------------------------------------------------------------------------

    def forward(
        self,
        signal: Tensor,
        image: Tensor,
        peaks: Tensor,
        mask: Tensor,
        measures: Tensor | None = None,
        report_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Classifies the beats of segments.

        Args:
            signal: Normalised. Shape: (B, C, T).
            image: In 0..1. Shape: (B, 3, H, W).
            peaks: R peaks, samples. Shape: (B, n).
            mask: Which of them are there. Shape: (B, n).
            measures: Of Tool 2, in its units, NaN where not measurable; with it the state is rich.
                Shape: (B, n, 16).
            report_ids: Of Tool 3, as words. Shape: (B, n, L).

        Returns:
            ``logits`` (B, n, 5), and ``confidence`` (B,) of the minimal state in 0..1.
        """
        encoded = self.backbone.encode(signal, image, peaks, mask)
        logits, features = self.backbone.decide(encoded)
        head = self.confidence(features, logits, mask)
        conf = routing.confidence(head, logits, mask, self.temperatures[0])
        if measures is not None and report_ids is not None:
            rich = torch.ones(len(mask), dtype=torch.bool, device=mask.device)
            evidence = Evidence(self._scale(measures), report_ids, rich)
            logits, _ = self.backbone.decide(encoded, evidence)
        return {"logits": logits, "confidence": conf}

    def _scale(self, measures: Tensor) -> Tensor:
        """Robust z-scores, by the median and quartiles of training."""
        spread = torch.where(self.spread > 0, self.spread, 1.0)
        return (measures - self.center) / spread

    def _call_tools(self, batch: Batch, rows: Tensor) -> tuple[Tensor, np.ndarray[Any, Any]]:
        """Tools 2 and 3 on some segments: measures (R, n, 16) and phrases (R, n, 6)."""
        strip, peaks, mask, rr = (
            batch[key][rows].cpu().numpy() for key in ("strip", "peaks", "mask", "rr")
        )
        measures = self.measure_tool(strip[:, 0], peaks, mask, rr, FS)
        if isinstance(self.report_tool, ReportTool):
            codes = self.report_tool(measures)
        else:
            codes = self.report_tool(batch["image"][rows], peaks, mask, self.size)
        return torch.from_numpy(measures).to(rows.device), codes

    def _gather(self, batch: Batch, rich: Tensor) -> Evidence:
        """Evidence for the segments that are rich, and nothing for the others. Shape: (B,)."""
        rows = rich.nonzero()[:, 0]
        measures, codes = self._call_tools(batch, rows)
        shape = batch["mask"].shape
        scaled = measures.new_full((*shape, len(MEASURES)), torch.nan)
        scaled[rows] = self._scale(measures)
        ids = torch.zeros(*shape, LENGTH, dtype=torch.long, device=rows.device)
        ids[rows] = torch.from_numpy(to_ids(codes)).to(rows.device)
        return Evidence(scaled, ids, rich)

    def _encode(self, batch: Batch) -> Encoded:
        return self.backbone.encode(*(batch[k] for k in ("signal", "image", "peaks", "mask")))

    # -- training ----------------------------------------------------------------------------

    def on_train_start(self) -> None:
        """Measures the spread of Tool 2's numbers and the classes' frequencies, once."""
        if bool(self.spread.any()):
            return
        measures, labels = [], []
        with torch.random.fork_rng(devices=[]):
            for number, batch in enumerate(self.trainer.train_dataloader or ()):
                seen = (~batch["held_out"]).nonzero()[:, 0]
                found, _ = self._call_tools(batch, seen)
                measures.append(found[batch["mask"][seen]])
                labels.append(batch["label"][seen].flatten())
                if number + 1 == STATISTICS_BATCHES:
                    break
        values, label = torch.cat(measures), torch.cat(labels)
        low, middle, high = torch.nanquantile(
            values, values.new_tensor([0.25, 0.5, 0.75]), dim=0
        ).nan_to_num()
        known = label[(label >= 0) & (label < len(CLASSES))]
        counts = torch.bincount(known, minlength=len(CLASSES)).float()
        spread = ((high - low) / 1.35).clamp_min(MIN_SPREAD)
        of_rank_0 = self.trainer.strategy.broadcast((middle, spread, counts))
        buffers = self.center, self.spread, self.class_counts
        for buffer, value in zip(buffers, of_rank_0, strict=True):
            buffer.copy_(value)
        self.measure_tool.calls = self.report_tool.calls = 0

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The loss of the current stage, on the patients that it trains on."""
        wanted = batch["held_out"] if self.stage.name == "confidence" else ~batch["held_out"]
        rows = wanted.nonzero()[:, 0]
        part = {k: v[rows] for k, v in batch.items() if isinstance(v, Tensor)}
        step = self._confidence_loss if self.stage.name == "confidence" else self._evidence_loss
        loss = step(part) if len(rows) else self._no_loss()
        self.log("train_loss", loss, prog_bar=True, batch_size=len(rows) or 1)
        return loss

    def _no_loss(self) -> Tensor:
        """0, with a gradient of 0 for whatever trains: a batch without such patients."""
        return torch.stack([p.sum() for p in self.parameters() if p.requires_grad]).sum() * 0

    def _evidence_loss(self, batch: Batch) -> Tensor:
        mask = batch["mask"]
        rich = torch.rand(len(mask)).to(mask.device) < 0.5
        rich[0] = True  # so that every parameter has a gradient
        encoded = self._encode(batch)
        logits, _ = self.backbone.decide(encoded, self._gather(batch, rich))
        weights = class_weights(self.class_counts)
        loss = focal_loss(logits, batch["label"], weights, self.focal_gamma)
        heat = self.backbone.heat_logits(encoded)
        return loss + HEAT_WEIGHT * heat_loss(heat, encoded.peaks, encoded.there, STRIDE)

    def _confidence_loss(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            encoded = self._encode(batch)
            minimal, features = self.backbone.decide(encoded)
            right = _right(minimal, batch)
            target = right == batch["mask"].sum(dim=1)
            if self.confidence_target == "no_gain":
                everywhere = torch.ones_like(target)
                rich, _ = self.backbone.decide(encoded, self._gather(batch, everywhere))
                target = _right(rich, batch) <= right
        logit = self.confidence(features, minimal, batch["mask"])
        return F.binary_cross_entropy_with_logits(logit, target.float())

    # -- evaluation --------------------------------------------------------------------------

    def _shared_step(self, batch: Batch, stage: str) -> dict[str, Tensor]:
        """Both states of all segments; only :meth:`annotate` leaves evidence out where it can."""
        mask = batch["mask"]
        encoded = self._encode(batch)
        minimal, features = self.backbone.decide(encoded)
        everywhere = torch.ones(len(mask), dtype=torch.bool, device=mask.device)
        rich, _ = self.backbone.decide(encoded, self._gather(batch, everywhere))
        head = self.confidence(features, minimal, mask)
        rows = routing.Rows(minimal, rich, batch["label"], batch["missed"], mask, head)
        table: Any = self.val_metrics if stage == "val" else self.test_metrics
        table[f"{stage}_rows"].update(rows)
        conf = routing.confidence(head, minimal, mask, self.temperatures[0])
        routed = self._needs_evidence(conf, mask)
        logits = torch.where(routed[:, None, None], rich, minimal)
        return {"logits": logits, "confidence": conf, "state": routed.long()}

    def _needs_evidence(self, conf: Tensor, mask: Tensor) -> Tensor:
        """Which segments take the rich state. Shape: (B,)."""
        if self.evidence == "route":
            return routing.route(conf, self.threshold) & mask.any(dim=1)
        return torch.full_like(conf, self.evidence == "rich", dtype=torch.bool) & mask.any(dim=1)

    def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Gathers what both states say."""
        return self._shared_step(batch, "val")

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Gathers what both states say."""
        return self._shared_step(batch, "test")

    def on_validation_epoch_end(self) -> None:
        """Fits temperatures and threshold, while training, and logs what comes of them."""
        table: Any = self.val_metrics["val_rows"]
        rows = table.compute()
        table.reset()
        if self.trainer.state.fn == "fit" and not self.trainer.sanity_checking:
            self._calibrate(rows)
        found = self._figures(rows, full=False)
        found["objective"] = self._objective(rows, found)
        self.log_dict({f"val_{k}": v for k, v in found.items()}, prog_bar=True)

    def on_test_epoch_end(self) -> None:
        """Logs macro-F1 of both states and of routing, and all that the claims ask for."""
        table: Any = self.test_metrics["test_rows"]
        rows = table.compute()
        table.reset()
        found = self._figures(rows, full=True)
        self.log_dict({f"test_{k}": v for k, v in found.items()})

    def _figures(self, rows: routing.Rows, full: bool) -> dict[str, Tensor]:
        tau = {"route": float(self.threshold), "minimal": 0.0, "rich": 2.0}[self.evidence]
        return routing.figures_of(rows, self.temperatures, tau, full)

    def _objective(self, rows: routing.Rows, found: Mapping[str, Tensor]) -> Tensor:
        """What the current stage trains: macro-F1 of the two states, or the head's probabilities.

        The second is 1 - Brier score. By macro-F1 of routing an untrained head could be kept.
        """
        if self.stage.name == "evidence":
            return (found["macro_f1_minimal"] + found["macro_f1_rich"]) / 2
        return 1 - routing.brier(rows, self.confidence_target)

    def _calibrate(self, rows: routing.Rows) -> None:
        """Sets temperatures, threshold and the validation curve."""
        temperatures, tau, curve = routing.calibrate(rows, self.cost)
        self.temperatures.copy_(temperatures)
        self.curve.copy_(curve)
        if self.tau is None:
            self.threshold.fill_(tau)

    # -- use ---------------------------------------------------------------------------------

    def annotate(
        self, record: Source, fs: float | None = None, lead: str | Sequence[str] | None = None
    ) -> Beats:
        """Finds the beats of a record and says which class each is.

        Args:
            record: WFDB record (a path without suffix), EDF or CSV file, or an array (T,) or (C, T)
                in millivolts.
            fs: Samples a second, of arrays and CSV files.
            lead: Name; ``None`` for MLII where there is one, else the first.

        Returns:
            A dict a beat: ``sample`` in the record, ``label``, ``prob`` of it, ``probs`` by class,
            ``confidence`` of its segment, ``state`` (0 minimal, 1 rich), and in the rich state
            ``measures`` by name (NaN where not measurable) and ``report``, else ``None``.

        Raises:
            ZooError: If the record is missing, unreadable, too short, sampled below 100 Hz, has no
                such lead, or is flat all over.
        """
        annotated = self.peak_tool.method == "annotation"
        count = max(self.leads, 1)
        read = read_record(record, lead, fs, annotated, self.size / FS, count)
        strip = prepare(read)
        reference = None if read.peaks is None else strip.from_original(read.peaks)
        peaks = self.peak_tool(strip.signal[0], FS, reference)
        segments, notes = cut_record(strip, peaks, self.size)
        beats: list[dict[str, Any]] = []
        with self.evaluating():
            usable = [i for i, note in enumerate(notes) if not note.flag]
            for begin in range(0, len(usable), ANNOTATE_BATCH):
                chosen = usable[begin : begin + ANNOTATE_BATCH]
                said = self._decide(strip, [segments[i] for i in chosen])
                for row, i in enumerate(chosen):
                    state, conf = int(said["state"][row]), float(said["confidence"][row])
                    notes[i] = replace(notes[i], confidence=conf, state=state)
                    beats += beats_of(segments[i], row, said, strip, peaks)
        return Beats(
            beats, read.name, read.fs, notes, self.peak_tool.method, strip.signal[0], strip.fs
        )

    predict = annotate  # its name in the contract of all methods

    def _decide(self, strip: Strip, segments: Sequence[Segment]) -> dict[str, Any]:
        """What is said of a batch of segments, with evidence for those that need it only."""
        samples = [network_inputs(strip, s, s.mask, self.image_size) for s in segments]
        batch = {k: torch.stack([s[k] for s in samples]).to(self.device) for k in samples[0]}
        encoded = self._encode(batch)
        logits, features = self.backbone.decide(encoded)
        head = self.confidence(features, logits, batch["mask"])
        conf = routing.confidence(head, logits, batch["mask"], self.temperatures[0])
        needs = self._needs_evidence(conf, batch["mask"])
        probs = (logits.float() / self.temperatures[0]).softmax(dim=-1)
        said: dict[str, Any] = {"confidence": conf.tolist(), "state": needs.tolist(), "rows": {}}
        rows = needs.nonzero()[:, 0]
        if len(rows):
            measures, codes = self._call_tools(batch, rows)
            ids = torch.from_numpy(to_ids(codes)).to(self.device)
            evidence = Evidence(self._scale(measures), ids, needs[rows])
            rich, _ = self.backbone.decide(encoded.select(rows), evidence)
            probs[rows] = (rich.float() / self.temperatures[1]).softmax(dim=-1)
            numbers = measures.cpu().numpy()
            said["rows"] = {row: (numbers[i], codes[i]) for i, row in enumerate(rows.tolist())}
        said["probs"] = probs.cpu().numpy()
        return said

    def predict_step(self, batch: Batch, batch_idx: int) -> list[dict[str, Any]]:
        """The beats of each record of a batch."""
        given = zip(batch["name"], batch["path"], batch["fs"].tolist(), strict=True)
        return [{"name": n, "beats": self.annotate(path, fs=fs or None)} for n, path, fs in given]

    def write_prediction(self, prediction: Mapping[str, Any], path: Path) -> list[Path]:
        """Writes ``.csv`` with a row a beat, ``.atr`` for wfdb, and ``.png`` with ten seconds."""
        beats: Beats = prediction["beats"]
        return beats.save(path)

    def example_inputs(self) -> dict[str, Tensor]:
        """Two segments of triangles for beats, the second with one beat fewer."""
        beats = 4
        t = torch.arange(self.size)
        peaks = torch.linspace(0.1, 0.9, beats).mul(self.size).long().expand(2, -1).contiguous()
        mask = torch.ones(2, beats, dtype=torch.bool)
        mask[1, -1] = False
        waves = (1 - (t - peaks[0, :, None]).abs() / 12).clamp_min(0).sum(dim=0)
        height, width = self.image_size
        ramp = torch.linspace(0, 1, width).expand(2, 3, height, width).contiguous()
        measures = torch.linspace(0, 1, len(MEASURES)).expand(2, beats, -1).contiguous()
        ids = torch.ones(2, beats, LENGTH, dtype=torch.long)
        return {
            "signal": waves.expand(2, max(self.leads, 1), -1).contiguous(),
            "image": ramp,
            "peaks": peaks * mask,
            "mask": mask,
            "measures": measures,
            "report_ids": ids,
        }

    def figures(self, batch: Batch, outputs: Mapping[str, Any]) -> dict[str, Figure]:
        """The liveliest segment with classes and confidence, and macro-F1 over the share rich."""
        from zoo.deep_arrhythmia.figure import routing_curve, segment

        odd = ((batch["label"] > 0) & (batch["label"] < len(CLASSES))).sum(dim=1)
        row = int(odd.argmax())
        shown = {k: v[row].cpu() for k, v in batch.items() if isinstance(v, Tensor)}
        said = {k: v[row].float().cpu() for k, v in outputs.items()}
        return {
            "segment": segment(shown, said, batch["record"][row]),
            "routing": routing_curve(self.curve.cpu()),
        }


def _right(logits: Tensor, batch: Batch) -> Tensor:
    """Beats of each segment whose class is right. Shape: (B,)."""
    right: Tensor = (logits.argmax(dim=-1) == batch["label"]) & batch["mask"]
    return right.sum(dim=1)
