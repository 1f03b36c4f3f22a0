"""Optimisers and schedules from plain data, as they stand in a YAML."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from zoo.errors import ZooError

if TYPE_CHECKING:
    from lightning import LightningModule

SCHEDULE_KEYS = ("interval", "frequency", "monitor")


def build_optimizers(
    module: LightningModule,
    optimizer: Mapping[str, Any],
    lr_scheduler: Mapping[str, Any] | None = None,
    total_steps: int | None = None,
) -> Any:
    """Builds an optimiser, and a schedule if there is one, over the trainable parameters.

    A scheduler whose ``total_steps`` is ``None`` gets the number of steps of this training.

    Args:
        module: Attached to a trainer. If it has ``parameter_groups(lr)``, which divides its
            parameters into groups with learning rates of their own, the optimiser takes these.
        optimizer: ``{"class_path": ..., "init_args": {...}}``.
        lr_scheduler: The same, with ``interval`` ("step" or "epoch", the default), ``frequency``
            and ``monitor`` beside them.
        total_steps: Length of the schedule; ``None`` for the whole training.

    Returns:
        What ``configure_optimizers`` returns.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    if not parameters:
        raise ZooError(f"{type(module).__name__} has no trainable parameters.")
    cls, init_args = _class(optimizer["class_path"]), dict(optimizer.get("init_args", {}))
    groups: Any = getattr(module, "parameter_groups", None)
    if groups is not None:
        lr = init_args.get("lr", inspect.signature(cls).parameters["lr"].default)
        parameters = groups(lr)
    built = cls(parameters, **init_args)
    if lr_scheduler is None:
        return built
    cls = _class(lr_scheduler["class_path"])
    init_args = dict(lr_scheduler.get("init_args", {}))
    accepted = inspect.signature(cls).parameters
    if "total_steps" in accepted and init_args.get("total_steps") is None:
        init_args["total_steps"] = total_steps or int(module.trainer.estimated_stepping_batches)
    scheduler = cls(built, **init_args)
    schedule = {key: lr_scheduler[key] for key in SCHEDULE_KEYS if key in lr_scheduler}
    if hasattr(scheduler, "monitor"):  # lightning.pytorch.cli.ReduceLROnPlateau
        schedule["monitor"] = scheduler.monitor
    return {"optimizer": built, "lr_scheduler": {"scheduler": scheduler, **schedule}}


def _class(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)
