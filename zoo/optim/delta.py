"""SGD and AdamW whose momentum is an associative memory, corrected by the delta rule.

Reference:
    "the abstract" and public notes on arXiv 2608.19491 (J. Hong and Guannan Qu).

The momentum M of a weight W, both (m, n), stores values (output gradients) under keys (inputs). An
exponential average forgets all directions alike. The delta rule forgets where it stores:

    M <- beta M + (1 - beta) G - eta M S,    S = mean of x^ x^T over the batch's unit keys x^

with M on the right before its decay. It differs from the paper's M <- beta M + eta (G - M S) by a
constant factor (1 - beta) / eta: so eta = 0 is the base optimiser to the last bit, learning rates
carry over, and directions without keys behave as before. A direction with eigenvalue l of S is
remembered for 1 / ((1 - beta) + eta l) steps, and under a constant G the memory tends to
mu G (mu I + S)^-1 with mu = (1 - beta) / eta, the regularised linear predictor of values from keys.

Since S has trace at most 1, |beta - eta l| <= 1 for 0 <= eta <= 1 + beta: other values are refused.

Keys come from :func:`~zoo.optim.attach_delta_keys`, or in a config from the callback
``zoo.callbacks.DeltaKeyCapture``.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar
from weakref import ref

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim.adamw import adamw
from torch.optim.optimizer import Optimizer

from zoo.errors import ZooError
from zoo.optim.keys import KEYS, KeySum, check_rows
from zoo.optim.reduce import KeyReducer

log = logging.getLogger(__name__)

STACKED = 2**22  # numbers that one batched product M S copies, at most
FALLBACKS = ("ema", "raise")


def forget(work: Iterable[tuple[Tensor, KeySum, float]]) -> None:
    """Does ``M <- M (I - strength S)`` in place, with few products for many matrices.

    Momenta that share S are one matrix with more rows, and those of one shape are one batch. A sum
    that is not finite, from a forward pass that overflowed, counts as no keys at all.

    Args:
        work: M with any number of trailing dimensions, the sum whose mean is S, and the strength.
    """
    shared: dict[tuple[int, float], tuple[KeySum, list[Tensor]]] = {}
    for memory, keys, strength in work:
        shared.setdefault((keys.serial, strength), (keys, []))[1].append(memory)
    shapes: dict[Any, list[tuple[Tensor, list[Tensor]]]] = {}
    for (_, strength), (keys, memories) in shared.items():
        second = _finite(keys.total * (strength / keys.count))
        rows = sum(len(memory) for memory in memories)
        shape = (rows, *second.shape, second.dtype, second.device)
        shapes.setdefault(shape, []).append((second, memories))
    for shape, batch in shapes.items():
        size = max(1, STACKED // max(1, shape[0] * shape[1] + shape[1] ** 2))
        for start in range(0, len(batch), size):
            part = batch[start : start + size]
            stacks = [torch.cat([m.flatten(1) for m in memories]) for _, memories in part]
            seconds = torch.stack([second for second, _ in part])  # (k, n, n)
            lost = torch.bmm(torch.stack(stacks).to(seconds.dtype), seconds)  # (k, rows, n)
            for (_, memories), product in zip(part, lost, strict=True):
                pieces = torch.split(product, [len(memory) for memory in memories])
                for memory, piece in zip(memories, pieces, strict=True):
                    memory.sub_(piece.view(memory.shape))


class DeltaRule(Optimizer):
    """What both optimisers share: keys in, momentum corrected.

    Attributes:
        buffer: Name of the momentum in the state, as in the base optimiser's.
    """

    buffer: ClassVar[str]

    def __init__(self, params: Any, defaults: dict[str, Any], fallback: str) -> None:
        if fallback not in FALLBACKS:
            raise ZooError(f"fallback={fallback!r} is unknown: expected {', '.join(FALLBACKS)}.")
        self.fallback = fallback
        self._warned = False
        self._reducer: KeyReducer | None = None
        super().__init__(params, defaults)

    @abstractmethod
    def beta(self, group: Mapping[str, Any]) -> float:
        """The decay of a group's momentum."""

    @abstractmethod
    def _init_state(self, weight: Tensor, group: Mapping[str, Any]) -> None:
        """Makes the state of a weight that takes its first step."""

    @abstractmethod
    def _update(self, group: Mapping[str, Any], weights: list[Tensor]) -> None:
        """The base optimiser's step."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group, whose ``eta`` may be its own.

        Raises:
            ZooError: If its eta is out of range.
        """
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        _check(group["eta"], self.beta(group), type(self).__name__)
        for weight in group["params"]:
            KEYS.optimizers[weight] = ref(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Takes the state of the base optimiser too, which knows no eta."""
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("eta", self.defaults["eta"])

    def __getstate__(self) -> dict[str, Any]:
        """All but what belongs to this process."""
        extra = {"fallback": self.fallback, "_warned": self._warned, "_reducer": None}
        return {**super().__getstate__(), **extra}

    def momentum(self, weight: Tensor) -> Tensor | None:
        """M of a weight; ``None`` before its first step."""
        state = self.state.get(weight)
        return None if not state else state.get(self.buffer)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; it uses up the keys that were captured since the last.

        Args:
            closure: Computes the loss and its gradients; keys are looked at after it.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        weights = [weight for group in self.param_groups for weight in group["params"]]
        keys = dict(zip(map(id, weights), self._take(weights), strict=True))
        for group in self.param_groups:
            moving = [weight for weight in group["params"] if weight.grad is not None]
            for weight in moving:
                if not self.state[weight]:
                    self._init_state(weight, group)
            if group["eta"] > 0:
                self._correct(group, moving, keys)
        if not self._warned:
            self._report(keys)
        for group in self.param_groups:
            moving = [weight for weight in group["params"] if weight.grad is not None]
            if moving:
                self._update(group, moving)
        return loss

    def _take(self, weights: Sequence[Tensor]) -> list[dict[str, KeySum]]:
        """The keys of all weights, over all ranks."""
        taken = [KEYS.pop(weight) for weight in weights]
        used = any(group["eta"] > 0 for group in self.param_groups)
        captured = [i for i, weight in enumerate(weights) if weight in KEYS.shapes]
        if not (used and captured and dist.is_available() and dist.is_initialized()):
            return taken
        if dist.get_world_size() == 1:
            return taken
        those = [weights[i] for i in captured]
        if self._reducer is None or [*map(id, self._reducer.weights)] != [*map(id, those)]:
            self._reducer = KeyReducer(those)
        for index, reduced in zip(
            captured, self._reducer([taken[i] for i in captured]), strict=True
        ):
            taken[index] = reduced
        return taken

    def _correct(
        self,
        group: Mapping[str, Any],
        weights: Iterable[Tensor],
        keys: Mapping[int, Mapping[str, KeySum]],
    ) -> None:
        """M <- M (I - (eta / beta) S), which the base optimiser's decay makes the update above."""
        beta = self.beta(group)
        work: list[tuple[Tensor, KeySum, float]] = []
        replaced: list[tuple[Tensor, Tensor, KeySum]] = []
        strength = group["eta"] / beta
        for weight in weights:
            sums, memory = keys[id(weight)], self.momentum(weight)
            if memory is None and "unit" in sums:  # SGD's first: its update makes this G^
                assert weight.grad is not None
                first = sums["unit"].total.view(weight.shape) - (1 - beta) * weight.grad
                self.state[weight][self.buffer] = (first / beta).to(weight.dtype)
            if memory is None or not sums:
                continue
            check_rows(memory, KEYS.names.get(weight, "A matrix"))
            local = _local(memory)
            if "gram" in sums:
                work.append((local, sums["gram"], strength))
            if "readout" in sums:
                read = sums["readout"]
                local.sub_(_finite(read.total * (strength / read.count)).view(local.shape))
            if "unit" in sums:
                replaced.append((weight, local, sums["unit"]))
        forget(work)
        for weight, local, stored in replaced:  # after forgetting: what is new is not yet stored
            assert weight.grad is not None
            change = stored.total.view(local.shape) - weight.grad
            local.add_(change, alpha=(1 - beta) / beta)

    def _report(self, keys: Mapping[int, Mapping[str, KeySum]]) -> None:
        """Says once which matrices have plain momentum."""
        self._warned = True
        matrices = [
            weight
            for group in self.param_groups
            for weight in group["params"]
            if group["eta"] > 0 and weight.ndim >= 2 and weight.grad is not None
        ]
        plain = [weight for weight in matrices if not keys[id(weight)]]
        if not plain:
            return
        names = ", ".join(KEYS.names.get(w, f"one of shape {tuple(w.shape)}") for w in plain)
        text = f"{type(self).__name__} has no keys for {names}: plain momentum there."
        if len(plain) == len(matrices):
            text = (
                f"{type(self).__name__} has no keys at all and is its base optimiser: capture them "
                "with the callback zoo.callbacks.DeltaKeyCapture or zoo.optim.attach_delta_keys."
            )
        if self.fallback == "raise":
            raise ZooError(text)
        if not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0:
            log.warning(text)


class DeltaSGD(DeltaRule):
    """SGD with a momentum that forgets where it stores.

    With ``eta=0`` it is ``torch.optim.SGD(momentum=b, dampening=b)``, bit for bit, whose state it
    takes: the momentum is an average, so learning rates are 1 / (1 - b) times those of SGD without
    dampening. As there, the first gradient is the first momentum.

    Args:
        params: As for any optimiser; a group may have its own ``eta``.
        lr: Learning rate.
        momentum: beta, in (0, 1).
        weight_decay: Decoupled, and of parameters with two dimensions or more only.
        eta: Strength of the correction, in 0..1 + beta; above beta the most frequent direction
            changes its sign from step to step. It does not depend on width.
        nesterov: Step by ``beta M + (1 - beta) G`` with the new M.
        fallback: What matrices without keys do: "ema", plain momentum, told once in the log; or
            "raise". Groups with ``eta=0`` are meant to have none.

    Raises:
        ZooError: For a value out of range.
    """

    buffer = "momentum_buffer"

    def __init__(
        self,
        params: Any,
        lr: float = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        eta: float = 0.8,
        nesterov: bool = False,
        fallback: str = "ema",
    ) -> None:
        _check_rates(lr, weight_decay)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "eta": eta,
            "nesterov": nesterov,
        }
        super().__init__(params, defaults, fallback)

    def beta(self, group: Mapping[str, Any]) -> float:
        """``momentum``."""
        return float(group["momentum"])

    def _init_state(self, weight: Tensor, group: Mapping[str, Any]) -> None:
        """Nothing yet: the first gradient will be the momentum."""

    def _update(self, group: Mapping[str, Any], weights: list[Tensor]) -> None:
        beta, lr = group["momentum"], group["lr"]
        matrices = [weight for weight in weights if weight.ndim >= 2]
        if group["weight_decay"] and matrices:
            torch._foreach_mul_(matrices, 1 - lr * group["weight_decay"])
        grads = [weight.grad for weight in weights if weight.grad is not None]
        buffers: list[Tensor] = []
        known: list[Tensor] = []
        theirs: list[Tensor] = []
        for weight, grad in zip(weights, grads, strict=True):
            memory = self.state[weight].get(self.buffer)
            if memory is None:
                memory = self.state[weight][self.buffer] = grad.detach().clone()
            else:
                known.append(memory)
                theirs.append(grad)
            buffers.append(memory)
        if known:
            torch._foreach_mul_(known, beta)
            torch._foreach_add_(known, theirs, alpha=1 - beta)
        if group["nesterov"]:
            ahead = torch._foreach_mul(grads, 1 - beta)
            torch._foreach_add_(ahead, buffers, alpha=beta)
            buffers = list(ahead)
        torch._foreach_add_(weights, buffers, alpha=-lr)


class DeltaAdamW(DeltaRule):
    """AdamW with a first moment that forgets where it stores.

    With ``eta=0`` it is ``torch.optim.AdamW``, bit for bit, whose state it takes; the second moment
    is always that of the gradient.

    Args:
        params: As for any optimiser; a group may have its own ``eta``.
        lr: Learning rate.
        betas: Decay of the two moments; the first in (0, 1).
        eps: Added to the root of the second moment.
        weight_decay: Decoupled, and of parameters with two dimensions or more only.
        eta: Strength of the correction, in 0..1 + beta; above beta the most frequent direction
            changes its sign from step to step. It does not depend on width.
        fallback: What matrices without keys do: "ema", plain momentum, told once in the log; or
            "raise". Groups with ``eta=0`` are meant to have none.
        fused: Use PyTorch's fused kernel for what follows the correction, not the foreach one.

    Raises:
        ZooError: For a value out of range.
    """

    buffer = "exp_avg"

    def __init__(
        self,
        params: Any,
        lr: float = 3e-3,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
        eta: float = 0.8,
        fallback: str = "ema",
        fused: bool = False,
    ) -> None:
        _check_rates(lr, weight_decay)
        if not 0 <= betas[1] < 1 or eps < 0:
            raise ZooError(f"betas={betas} must lie below 1, and eps={eps} not below 0.")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "eta": eta,
            "fused": fused,
        }
        super().__init__(params, defaults, fallback)

    def beta(self, group: Mapping[str, Any]) -> float:
        """``betas[0]``."""
        return float(group["betas"][0])

    def _init_state(self, weight: Tensor, group: Mapping[str, Any]) -> None:
        device = weight.device if group["fused"] else None  # where the kernel wants its counter
        self.state[weight].update(
            step=torch.zeros((), dtype=torch.float32, device=device),
            exp_avg=torch.zeros_like(weight, memory_format=torch.preserve_format),
            exp_avg_sq=torch.zeros_like(weight, memory_format=torch.preserve_format),
        )

    def _update(self, group: Mapping[str, Any], weights: list[Tensor]) -> None:
        fused = bool(group.get("fused"))
        for decay, matrices in ((group["weight_decay"], True), (0.0, False)):
            chosen = [weight for weight in weights if (weight.ndim >= 2) == matrices]
            if not chosen:
                continue
            states = [self.state[weight] for weight in chosen]
            adamw(
                chosen,
                [weight.grad for weight in chosen if weight.grad is not None],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                [state["step"] for state in states],
                foreach=not fused,
                fused=fused,
                amsgrad=False,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                lr=group["lr"],
                weight_decay=decay,
                eps=group["eps"],
                maximize=False,
            )


def _check_rates(lr: float, weight_decay: float) -> None:
    if lr < 0 or weight_decay < 0:
        raise ZooError(f"lr={lr} and weight_decay={weight_decay} must not be negative.")


def _check(eta: float, beta: float, name: str) -> None:
    if not 0 <= beta < 1 or (beta == 0 and eta > 0):
        raise ZooError(f"{name}: beta={beta} must lie in (0, 1); without decay nothing is stored.")
    if not 0 <= eta <= 1 + beta:
        raise ZooError(
            f"{name}: eta={eta} must lie in 0..{1 + beta:g} (1 + beta), or the memory of the most "
            "frequent direction grows without bound."
        )
    if eta > beta:
        log.warning(
            f"{name}: eta={eta} is above beta={beta}: the memory of a direction that fills more "
            f"than {beta / eta:.0%} of S changes its sign at each step."
        )


def _finite(matrix: Tensor) -> Tensor:
    return torch.where(matrix.isfinite().all(), matrix, 0.0)


def _local(tensor: Tensor) -> Tensor:
    """The part on this device: of a ``DTensor`` a view, else the tensor itself."""
    local: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local
