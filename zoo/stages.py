"""Several stages of training in one ``fit``: pretrain, then calibrate, then fuse.

A stage says which submodules train, for how many optimiser steps, and with which optimiser and
schedule. At its end the next one's parameters are unfrozen, a new optimiser is built, and a
DDP-wrapped model is wrapped anew, so that no parameter is ever without a gradient there. A
checkpoint holds the number of its stage, so a resumed run goes on where it was.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from torch import Tensor

from zoo.errors import ZooError, did_you_mean

if TYPE_CHECKING:
    from zoo.base import ZooModule


@dataclass(frozen=True)
class Stage:
    """One stage of training.

    Attributes:
        name: What ``training_step`` asks for.
        train: Names of the submodules that train; all others are frozen and in eval mode.
        steps: Optimiser steps; ``None``, for the last stage only, means to the end of ``fit``.
        optimizer: As the YAML section of that name; ``None`` for the module's own.
        lr_scheduler: As the YAML section of that name; ``None`` for the module's own.
        average: Decay of a running average of the trained weights, which takes their place when the
            next stage begins; ``None`` for none. The last stage has Lightning's
            ``EMAWeightAveraging`` for that.
    """

    name: str
    train: Sequence[str]
    steps: int | None = None
    optimizer: Mapping[str, Any] | None = None
    lr_scheduler: Mapping[str, Any] | None = None
    average: float | None = None


def train_only(module: LightningModule, names: Sequence[str]) -> None:
    """Makes the submodules ``names`` trainable and freezes the rest."""
    known = dict(module.named_modules())
    for name in names:
        if name not in known:
            raise ZooError(
                f"{type(module).__name__} has no submodule '{name}' to train."
                f"{did_you_mean(name, known)}"
            )
    module.requires_grad_(False)
    module.eval()
    module.training = True  # the module itself trains; its frozen children stay in eval mode
    for name in names:
        known[name].requires_grad_(True).train()
    module.zero_grad(set_to_none=True)


class StageSwitch(Callback):
    """Enters each stage of a :class:`~zoo.base.ZooModule` when its predecessor is done."""

    def __init__(self) -> None:
        self.average: dict[str, Tensor] = {}  # of the current stage, by parameter
        self.averaged_step = 0

    def state_dict(self) -> dict[str, Any]:
        """The running average, so that a resumed stage ends as one that was not."""
        if not self.average:
            return {}
        return {"average": self.average, "averaged_step": self.averaged_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes up the running average."""
        self.average = dict(state_dict["average"])
        self.averaged_step = state_dict["averaged_step"]

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Starts ``fit`` in the first stage; a checkpoint, read later, may say another."""
        if stage != "fit":
            return
        module = cast("ZooModule", pl_module)
        if any(s.steps is None for s in module.training_stages[:-1]):
            raise ZooError("Only the last stage may go without 'steps'.")
        if not isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy):
            raise ZooError(
                f"Stages run on one device or with DDP, not with {type(trainer.strategy).__name__}."
            )
        # Frozen children are in eval mode on purpose.
        warnings.filterwarnings("ignore", r"Found \d+ module\(s\) in eval mode")
        module.stage_index = 0
        self.average, self.averaged_step = {}, 0
        train_only(module, module.training_stages[0].train)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Enters the next stage, or ends the training, once this one's steps are done."""
        module = cast("ZooModule", pl_module)
        self._update_average(trainer.global_step, module)
        steps = [s.steps for s in module.training_stages[: module.stage_index + 1]]
        if steps[-1] is None or trainer.global_step < sum(s or 0 for s in steps):
            return
        if module.stage_index + 1 == len(module.training_stages):
            trainer.should_stop = True
        else:
            self._enter(trainer, module, module.stage_index + 1)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warns if the training was too short for all stages."""
        module = cast("ZooModule", pl_module)
        if module.stage_index + 1 < len(module.training_stages) and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            ends = list(accumulate(s.steps or 0 for s in module.training_stages))
            rank_zero_warn(
                f"Training ended at step {trainer.global_step}, in stage '{module.stage.name}'; "
                f"'{module.training_stages[-1].name}' would have begun at step {ends[-2]}: "
                "raise max_epochs or max_steps."
            )

    def _update_average(self, step: int, module: ZooModule) -> None:
        decay = module.stage.average
        if decay is None or step == self.averaged_step:  # or gradients are being accumulated
            return
        begun = sum(s.steps or 0 for s in module.training_stages[: module.stage_index])
        keep = min(decay, (step - begun) / (step - begun + 9))  # faster at the beginning
        self.averaged_step = step
        trained = {k: p.detach() for k, p in module.named_parameters() if p.requires_grad}
        if not self.average:
            self.average = {key: value.float().clone() for key, value in trained.items()}
        for key, value in trained.items():
            self.average[key] = self.average[key].to(value.device).lerp_(value.float(), 1 - keep)

    def _enter(self, trainer: Trainer, module: ZooModule, index: int) -> None:
        with torch.no_grad():
            for key, value in self.average.items():
                module.get_parameter(key).copy_(value)
        self.average = {}
        module.stage_index = index
        train_only(module, module.stage.train)
        strategy = trainer.strategy
        if isinstance(strategy, DDPStrategy):
            strategy.model = module
            strategy.configure_ddp()
        strategy.setup_optimizers(trainer)
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            _forget_best(callback)
        rank_zero_info(f"Stage '{module.stage.name}' begins at step {trainer.global_step}.")


def _forget_best(callback: Any) -> None:
    """Starts the search for the best anew: stages may not be comparable by the same metric."""
    if isinstance(callback, ModelCheckpoint):
        callback.best_model_score = callback.current_score = None
        callback.kth_value = torch.tensor(torch.inf if callback.mode == "min" else -torch.inf)
        callback.best_k_models = {}
        callback.best_model_path = callback.kth_best_model_path = ""
    elif isinstance(callback, EarlyStopping):
        callback.wait_count = 0
        callback.best_score = callback.best_score.new_tensor(
            float("inf") if callback.mode == "min" else float("-inf")
        )
