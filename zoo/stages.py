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
from lightning.pytorch.trainer.states import TrainerFn
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
        stop: A logged metric of validation, "min" or "max", and a number of validations: the stage
            ends early after as many without a better value. However it ends, the next stage begins
            with the weights that were best. Not for the last stage, which has ``EarlyStopping`` and
            checkpoints for that.
    """

    name: str
    train: Sequence[str]
    steps: int | None = None
    optimizer: Mapping[str, Any] | None = None
    lr_scheduler: Mapping[str, Any] | None = None
    average: float | None = None
    stop: tuple[str, str, int] | None = None


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
        self.begun: int | None = None  # step, if an earlier stage has ended early
        self.best: dict[str, Tensor] = {}  # weights of the current stage, by parameter
        self.best_score = 0.0
        self.waited = 0  # validations since

    def state_dict(self) -> dict[str, Any]:
        """Running average and best weights, so that a resumed stage ends as one that was not."""
        state: dict[str, Any] = {}
        if self.average:
            state |= {"average": self.average, "averaged_step": self.averaged_step}
        if self.begun is not None:
            state["begun"] = self.begun
        if self.best:
            state |= {"best": self.best, "best_score": self.best_score, "waited": self.waited}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes them up."""
        self.average = dict(state_dict.get("average", {}))
        self.averaged_step = state_dict.get("averaged_step", 0)
        self.begun = state_dict.get("begun")
        self.best = dict(state_dict.get("best", {}))
        self.best_score = state_dict.get("best_score", 0.0)
        self.waited = state_dict.get("waited", 0)

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
        if module.training_stages[-1].stop is not None:
            raise ZooError("The last stage may not have 'stop': it ends by EarlyStopping.")
        self.average, self.averaged_step, self.begun = {}, 0, None
        self.best, self.waited = {}, 0
        train_only(module, module.training_stages[0].train)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Forgets what a validation between two stages said: nothing of the new one was trained."""
        module = cast("ZooModule", pl_module)
        if module.stage_index and trainer.global_step == self._begun(module):
            for callback in trainer.callbacks:  # type: ignore[attr-defined]
                _forget_best(callback, trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Enters the next stage, or ends the training, once this one's steps are done."""
        module = cast("ZooModule", pl_module)
        self._update_average(trainer.global_step, module)
        stage = module.stage
        idle = stage.stop is not None and self.waited >= stage.stop[2]
        done = trainer.global_step - self._begun(module)
        if not idle and (stage.steps is None or done < stage.steps):
            return
        if module.stage_index + 1 == len(module.training_stages):
            trainer.should_stop = True
        else:
            self._enter(trainer, module, module.stage_index + 1)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keeps the best weights of a stage that has a ``stop``, and counts since when."""
        module = cast("ZooModule", pl_module)
        fitting = trainer.state.fn == TrainerFn.FITTING
        if module.stage.stop is None or trainer.sanity_checking or not fitting:
            return
        metric, mode, _ = module.stage.stop
        if metric not in trainer.callback_metrics:
            raise ZooError(
                f"Stage '{module.stage.name}' stops by '{metric}', which validation does not log."
                f"{did_you_mean(metric, trainer.callback_metrics)}"
            )
        score = float(trainer.callback_metrics[metric])
        if not self.best or (score > self.best_score if mode == "max" else score < self.best_score):
            trained = {k: p.detach() for k, p in module.named_parameters() if p.requires_grad}
            self.best = {key: value.clone() for key, value in trained.items()}
            self.best_score, self.waited = score, 0
        else:
            self.waited += 1

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
        done = step - self._begun(module)
        keep = min(decay, done / (done + 9))  # faster at the beginning
        self.averaged_step = step
        trained = {k: p.detach() for k, p in module.named_parameters() if p.requires_grad}
        if not self.average:
            self.average = {key: value.float().clone() for key, value in trained.items()}
        for key, value in trained.items():
            self.average[key] = self.average[key].to(value.device).lerp_(value.float(), 1 - keep)

    def _begun(self, module: ZooModule) -> int:
        """The step that the current stage began at."""
        if self.begun is not None:
            return self.begun
        return sum(s.steps or 0 for s in module.training_stages[: module.stage_index])

    def _enter(self, trainer: Trainer, module: ZooModule, index: int) -> None:
        with torch.no_grad():
            for key, value in (self.best or self.average).items():
                module.get_parameter(key).copy_(value)
        if self.begun is not None or trainer.global_step < self._begun(module) + (
            module.stage.steps or 0
        ):
            self.begun = trainer.global_step
        self.average, self.best, self.waited = {}, {}, 0
        module.stage_index = index
        train_only(module, module.stage.train)
        strategy = trainer.strategy
        if isinstance(strategy, DDPStrategy):
            strategy.model = module
            strategy.configure_ddp()
        strategy.setup_optimizers(trainer)
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            _forget_best(callback, trainer)
        rank_zero_info(f"Stage '{module.stage.name}' begins at step {trainer.global_step}.")


def _forget_best(callback: Any, trainer: Trainer) -> None:
    """Starts the search for the best anew: stages may not be comparable by the same metric."""
    if isinstance(callback, ModelCheckpoint):
        if callback.save_last != "link":
            for path in callback.best_k_models:  # else two files would call themselves the best
                trainer.strategy.remove_checkpoint(path)
        callback.best_model_score = callback.current_score = None
        callback.kth_value = torch.tensor(torch.inf if callback.mode == "min" else -torch.inf)
        callback.best_k_models = {}
        callback.best_model_path = callback.kth_best_model_path = ""
    elif isinstance(callback, EarlyStopping):
        callback.wait_count = 0
        callback.best_score = callback.best_score.new_tensor(
            float("inf") if callback.mode == "min" else float("-inf")
        )
