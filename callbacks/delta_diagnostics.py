"""Looks into the momentum: what a plain average and the delta rule know of the gradient."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler

from zoo.atomic import atomic_path, write_json
from zoo.errors import ZooError
from zoo.optim import attach_delta_keys
from zoo.optim.keys import KEYS, DeltaKeyHandle
from zoo.reproducible import generator, global_seed

from .delta_keys import has_delta_rule


@dataclass(frozen=True)
class Diagnosis:
    """One layer at one step.

    Attributes:
        step: Optimiser steps so far.
        layer: Its name.
        delta_cos: Cosine between the delta rule's momentum and the gradient of a large batch.
        ema_cos: That of the plain average.
        delta_error: Squared error of reading the values of the large batch from the momentum by
            their keys, relative to that of reading zero, at the best scale of the momentum; 1 means
            that it knows nothing. Zero scale is the worst, so it is at most 1.
        ema_error: That of the plain average.
        effective_rank: Of S: exponential of the entropy of its eigenvalues.
        condition: Of S: ratio of its largest to its smallest eigenvalue, at most 1e8.
    """

    step: int
    layer: str
    delta_cos: float
    ema_cos: float
    delta_error: float
    ema_error: float
    effective_rank: float
    condition: float


MEASURES = tuple(name for name in Diagnosis.__dataclass_fields__ if name not in ("step", "layer"))


def spectrum(second: Tensor) -> tuple[float, float]:
    """Effective rank and condition number of a positive semi-definite matrix."""
    values = torch.linalg.eigvalsh(second.double()).clamp_min(0)
    share = values / values.sum()
    entropy = -(share * share.clamp_min(1e-30).log()).sum()
    condition = values[-1] / values[0].clamp_min(1e-8 * float(values[-1]))
    return float(entropy.exp()), float(condition)


class DeltaDiagnostics(Callback):
    """Compares both kinds of momentum on one trajectory, whichever optimiser makes it.

    Two momenta shadow the training of each captured linear layer. Every ``every_n_steps`` they are
    held against the gradient of ``batches`` fresh training batches at the present weights. The
    logger gets the means over layers; ``delta_diagnostics.json`` and a figure in the run folder
    have every layer; ``test`` reports the means over layers and steps. For one device: on several,
    the shadows follow the first one's keys.

    Args:
        every_n_steps: Between two looks.
        batches: That make the large batch.
        eta: Of the shadow.
        beta: Decay of both shadows.
        exclude: Names of layers to leave out, if no optimiser of the delta rule says itself.

    Raises:
        ZooError: For numbers out of range, manual optimisation, or such an optimiser without
            ``DeltaKeyCapture``.
    """

    def __init__(
        self,
        every_n_steps: int = 50,
        batches: int = 16,
        eta: float = 0.8,
        beta: float = 0.9,
        exclude: tuple[str, ...] = ("lm_head",),
    ) -> None:
        if every_n_steps < 1 or batches < 1 or not 0 < beta < 1 or not 0 < eta <= 1 + beta:
            raise ZooError(
                f"DeltaDiagnostics(every_n_steps={every_n_steps}, batches={batches}, eta={eta}, "
                f"beta={beta}): expected counts of at least 1, 0 < beta < 1, 0 < eta <= 1 + beta."
            )
        self.every_n_steps, self.batches = every_n_steps, batches
        self.eta, self.beta, self.exclude = eta, beta, tuple(exclude)
        self.history: list[Diagnosis] = []
        self._layers: dict[str, nn.Linear] = {}
        self._handle: DeltaKeyHandle | None = None
        self._seconds: dict[str, Tensor] = {}
        self._shadows: dict[str, tuple[Tensor, Tensor]] = {}
        self._mine = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Captures keys itself if no optimiser needs them."""
        if not pl_module.automatic_optimization:
            raise ZooError("DeltaDiagnostics needs automatic optimisation.")
        self._mine = not has_delta_rule(trainer)
        if self._mine:
            self._handle = attach_delta_keys(pl_module, exclude=self.exclude)

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Looks at the keys before the optimiser uses them up."""
        if not self._layers:
            self._layers = {
                name: layer
                for name, layer in pl_module.named_modules()
                if isinstance(layer, nn.Linear) and layer.weight in KEYS.shapes
            }
            if not self._layers:
                raise ZooError("DeltaDiagnostics finds no captured layer: add DeltaKeyCapture.")
        for name, layer in self._layers.items():
            gram = KEYS.peek(layer.weight).get("gram")
            if gram is not None:
                self._seconds[name] = gram.total / gram.count

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Moves the shadows by the clipped gradient, and measures if it is time."""
        if not self._seconds:
            return
        for name, second in self._seconds.items():
            grad = self._layers[name].weight.grad
            if grad is None:
                continue
            zero = torch.zeros_like(grad)
            delta, ema = self._shadows.get(name, (zero, zero))
            self._shadows[name] = (
                self.beta * delta + (1 - self.beta) * grad - self.eta * delta @ second,
                self.beta * ema + (1 - self.beta) * grad,
            )
        self._seconds = {}
        if self._mine:
            self._drop()
        if trainer.global_step % self.every_n_steps == 0 and trainer.is_global_zero:
            found = self._measure(trainer, pl_module)
            self.history += found
            for measure in MEASURES:
                mean = statistics.mean(getattr(one, measure) for one in found)
                pl_module.log(f"diagnostics_{measure}", mean, batch_size=1, rank_zero_only=True)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the history and its figure."""
        if self.history and trainer.is_global_zero and trainer.loggers:
            folder = Path(trainer.loggers[0].log_dir or trainer.default_root_dir)
            write_json(folder / "delta_diagnostics.json", [asdict(one) for one in self.history])
            with atomic_path(folder / "figures/delta_diagnostics.png") as path:
                draw(self.history).savefig(path, dpi=100)

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reports the means over layers and steps."""
        for measure in MEASURES if self.history else ():
            mean = statistics.mean(getattr(one, measure) for one in self.history)
            pl_module.log(f"test_{measure}", mean, batch_size=1, rank_zero_only=True)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Removes its own hooks."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _drop(self) -> None:
        for layer in self._layers.values():
            KEYS.pop(layer.weight)

    def _measure(self, trainer: Trainer, module: LightningModule) -> list[Diagnosis]:
        names = [name for name in self._layers if name in self._shadows]
        weights = [self._layers[name].weight for name in names]
        energy = {name: 0.0 for name in names}  # sum of |d|^2 |x|^2
        tokens = {name: 0 for name in names}
        grads = [torch.zeros_like(weight) for weight in weights]
        hooks = [
            self._layers[name].register_forward_hook(_energy(name, energy, tokens))
            for name in names
        ]
        precision = trainer.precision_plugin
        count = 0
        with torch.random.fork_rng(), _unlogged(module), torch.enable_grad():
            for batch in self._fresh(trainer):
                batch = trainer.strategy.batch_to_device(batch)
                with precision.train_step_context():
                    out = module.training_step(batch, 0)
                loss = out if isinstance(out, Tensor) else out["loss"]  # type: ignore[index]
                # Not backward(): DDP's hooks must not see this pass.
                for total, grad in zip(grads, torch.autograd.grad(loss, weights), strict=True):
                    total += grad
                count += 1
        for hook in hooks:
            hook.remove()
        found = []
        for name, weight, total in zip(names, weights, grads, strict=True):
            keys, gradient = KEYS.peek(weight)["gram"], total / count
            second = keys.total / keys.count
            # d is the gradient of a batch's mean: that of one token is as many times larger.
            norm = energy[name] * tokens[name] / count**2
            values = [_cosine_and_error(m, gradient, second, norm) for m in self._shadows[name]]
            rank, condition = spectrum(second)
            (delta, delta_error), (ema, ema_error) = values
            step = trainer.global_step
            measured = (delta, ema, delta_error, ema_error, rank, condition)
            found.append(Diagnosis(step, name, **dict(zip(MEASURES, measured, strict=True))))
        self._drop()
        return found

    def _fresh(self, trainer: Trainer) -> Iterator[Any]:
        loader = trainer.train_dataloader
        assert isinstance(loader, DataLoader)
        rng = generator(global_seed() or 0, trainer.global_step)
        torch.manual_seed(rng.initial_seed())
        size = loader.batch_size or 1
        count = size * self.batches
        dataset: Any = loader.dataset
        sampler = RandomSampler(dataset, True, count, generator=rng)
        yield from DataLoader(
            loader.dataset, size, sampler=sampler, collate_fn=loader.collate_fn, generator=rng
        )


def _cosine_and_error(
    memory: Tensor, gradient: Tensor, second: Tensor, norm: float
) -> tuple[float, float]:
    """Of one momentum: on average, what keys read squared is <M, M S>, and times values <M, G>."""
    product = float((memory * gradient).sum())
    cosine = product / max(float(memory.norm() * gradient.norm()), 1e-30)
    read = float((memory * (memory @ second)).sum())
    return cosine, 1 - product * abs(product) / max(read * norm, 1e-30)


def _energy(
    name: str, energy: dict[str, float], tokens: dict[str, int]
) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
    def hook(_: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        keys = args[0].detach().flatten(0, -2).float().square().sum(dim=1)
        tokens[name] += len(keys)

        def backward(d: Tensor) -> None:
            values = d.flatten(0, -2).float().square().sum(dim=1)
            energy[name] += float((keys * values).sum())

        output.register_hook(backward)  # type: ignore[no-untyped-call]

    return hook


@contextmanager
def _unlogged(module: LightningModule) -> Iterator[None]:
    """Keeps a further ``training_step`` out of the log."""
    silent: Mapping[str, Any] = {name: lambda *_, **__: None for name in ("log", "log_dict")}
    for name, method in silent.items():
        object.__setattr__(module, name, method)
    try:
        yield
    finally:
        for name in silent:
            object.__delattr__(module, name)


def draw(history: list[Diagnosis]) -> Figure:
    """Each measure over the steps: thin lines are layers, thick ones their means."""
    figure = Figure(figsize=(14, 4), layout="constrained")
    axes = figure.subplots(1, 4)
    panels = {
        "cosine with the gradient of a large batch": ("delta_cos", "ema_cos"),
        "error of reading values by keys": ("delta_error", "ema_error"),
        "effective rank of S": ("effective_rank",),
        "condition number of S": ("condition",),
    }
    steps = sorted({one.step for one in history})
    for axis, (title, measures) in zip(axes, panels.items(), strict=True):
        for color, measure in zip(("C0", "C1"), measures, strict=False):
            for layer in sorted({one.layer for one in history}):
                line = [(o.step, getattr(o, measure)) for o in history if o.layer == layer]
                axis.plot(*zip(*line, strict=True), color=color, alpha=0.2, lw=0.7)
            means = [
                statistics.mean(getattr(o, measure) for o in history if o.step == s) for s in steps
            ]
            label = {"delta": "delta rule", "ema": "plain average"}.get(measure.split("_")[0])
            axis.plot(steps, means, color=color, lw=2.5, label=label)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("optimiser steps")
        if len(measures) > 1:
            axis.legend(fontsize=9)
    axes[3].set_yscale("log")
    return figure
