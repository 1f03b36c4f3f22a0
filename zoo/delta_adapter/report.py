"""What validation and test report: the edits by group, and what others make of the same queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from zoo.delta_adapter import metrics as m
from zoo.delta_adapter.lora import pair_lora
from zoo.delta_adapter.loss import directional_similarity
from zoo.delta_adapter.metrics import ValueMean

if TYPE_CHECKING:
    from zoo.delta_adapter.encoders import TinyEncoder
    from zoo.delta_adapter.module import DeltaAdapter

GROUPS = ("seen", "unseen", "combination")
ERRORS = ("l1", "psnr", "ssim", "content_psnr", "directional", "accuracy")


def measures() -> dict[str, Metric | MetricCollection]:
    """The errors of validation, over all its transfers."""
    return {name: ValueMean() for name in ("l1", "psnr", "directional")}


def test_only() -> dict[str, ValueMean]:
    """Further metrics of the test.

    By group the method's errors and the L1 of the query as it is (``copy``); on seen edits
    reconstruction (the exemplar's own "before" as the query) and the leak, transfer minus
    reconstruction; the frozen editor told the true instruction; per-pair LoRA, and the method on
    the same queries; and how well encoder and judge read attributes.
    """
    names = [f"{name}_{group}" for group in GROUPS for name in (*ERRORS, "l1_copy")]
    names += ["l1_reconstruction", "leak", "l1_instructed", "directional_instructed"]
    names += ["l1_lora", "directional_lora", "l1_on_lora", "directional_on_lora"]
    names += ["accuracy_truth", "attributes_encoder", "attributes_judge"]
    return {name: ValueMean() for name in names}


def errors(
    model: DeltaAdapter, output: Tensor, batch: Mapping[str, Any]
) -> dict[str, tuple[Tensor, Tensor]]:
    """Errors of edited queries by name: value and whether there is one, (B,) each."""
    query, truth = batch["query"], batch["truth"]
    everywhere = torch.ones(len(query), dtype=torch.bool, device=query.device)
    found = {
        "l1": (m.l1(output, truth), everywhere),
        "psnr": (m.psnr(output, truth), everywhere),
        "ssim": (m.ssim(output, truth), everywhere),
        "content_psnr": m.content_psnr(output, query, truth),
        "directional": (direction(model, output, batch), everywhere),
    }
    if model.judge is not None:
        found["accuracy"] = m.attributes_right(model.judge.read(output), batch["attributes"])
    return found


def direction(model: DeltaAdapter, output: Tensor, batch: Mapping[str, Any]) -> Tensor:
    """Directional similarity of outputs to the exemplar. Shape: (B,)."""
    pictures = (output, batch["query"], batch["before"], batch["after"])
    return directional_similarity(*(model.encoder(x) for x in pictures))


def validate(model: DeltaAdapter, output: Tensor, batch: Mapping[str, Any]) -> None:
    """Updates ``val_metrics``."""
    found = errors(model, output, batch)
    for name, metric in model.val_metrics.items(keep_base=True):
        metric.update(found[str(name).removeprefix("val_")][0])


def test(model: DeltaAdapter, output: Tensor, batch: Mapping[str, Any]) -> None:
    """Updates ``test_metrics``."""
    metrics = model.test_metrics
    none = output.new_zeros(0)
    values = dict.fromkeys((str(name).removeprefix("test_") for name in metrics), none)
    found = errors(model, output, batch)
    values |= {name: value[known] for name, (value, known) in found.items() if name in values}
    copied = m.l1(batch["query"], batch["truth"])
    for number, group in enumerate(GROUPS):
        mine = batch["group"] == number
        for name, (value, known) in found.items():
            values[f"{name}_{group}"] = value[known & mine]
        values[f"l1_copy_{group}"] = copied[mine]
    values |= _on_seen(model, batch, found["l1"][0])
    values |= _lora(model, output, batch)
    if model.judge is not None:
        wanted = batch["attributes"]
        readers = {"encoder": cast("TinyEncoder", model.encoder), "judge": model.judge}
        for name, reader in readers.items():
            found_there = reader.read(batch["truth"])
            values[f"attributes_{name}"] = m.attribute_accuracy(found_there, wanted)
        right, known = m.attributes_right(model.judge.read(batch["truth"]), wanted)
        values["accuracy_truth"] = right[known]
    for name, value in values.items():
        metrics[f"test_{name}"].update(value)


def _on_seen(model: DeltaAdapter, batch: Mapping[str, Any], l1: Tensor) -> dict[str, Tensor]:
    mine = (batch["group"] == 0).nonzero()[:, 0]
    if not len(mine):
        return {}
    seen = {k: v[mine] for k, v in batch.items() if isinstance(v, Tensor)}
    edit = model.encode_edit(seen["before"], seen["after"])
    seeds = seen["index"].tolist()
    again = m.l1(model.sample(seen["before"], edit, seed=seeds), seen["after"])
    values = {"l1_reconstruction": again, "leak": l1[mine] - again}
    told = seen["task"] >= 0
    if model.instructed and bool(told.any()):
        told_batch = {key: value[told] for key, value in seen.items()}
        number = told_batch["task"] + 1
        seeds = told_batch["index"].tolist()
        out = model.sample(told_batch["query"], None, seed=seeds, instruction=number)
        values["l1_instructed"] = m.l1(out, told_batch["truth"])
        values["directional_instructed"] = direction(model, out, told_batch)
    return values


def _lora(model: DeltaAdapter, output: Tensor, batch: Mapping[str, Any]) -> dict[str, Tensor]:
    """Each of the first ``lora_items`` seen transfers is a training; groups alternate."""
    chosen = (batch["group"] == 0) & (batch["index"] < len(GROUPS) * model.lora_items)
    outputs, rows = [], chosen.nonzero()[:, 0]
    for row in rows.tolist():
        one = {k: batch[k][row : row + 1] for k in ("before", "after", "query")}
        seed = int(batch["index"][row])
        with pair_lora(model.editor, one["before"], one["after"], model.lora_steps, seed):
            untold = model.editor.unprompted(1)
            outputs.append(model.sample(one["query"], None, seed=[seed], instruction=untold))
    if not outputs:
        return {}
    picked = {k: v[rows] for k, v in batch.items() if isinstance(v, Tensor)}
    values = {}
    for name, out in (("lora", torch.cat(outputs)), ("on_lora", output[rows])):
        values[f"l1_{name}"] = m.l1(out, picked["truth"])
        values[f"directional_{name}"] = direction(model, out, picked)
    return values
