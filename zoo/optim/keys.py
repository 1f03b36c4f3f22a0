"""What each linear layer was fed between two optimiser steps: the keys of the delta rule.

The gradient of a layer ``y = W x`` for one token is ``d x^T``: a value ``d`` stored under a key
``x``. :func:`attach_delta_keys` makes each forward pass leave ``S``, the second moment of the unit
keys, beside the weight; the next step of :class:`~zoo.optim.DeltaAdamW` or
:class:`~zoo.optim.DeltaSGD` uses it up. Activations are not kept.

Layers that are fed the same tensor (queries, keys and values; gate and up) share one ``S``. Sums
are never changed in place: from the sum that a weight has and the tensor that it meets follows a
new sum, the same one for every weight that has the same sum and meets the same tensor. So sharing
is right whatever is accumulated, skipped or used twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Any, TypeAlias
from weakref import ReferenceType

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakTensorKeyDictionary

from zoo.errors import ZooError, check_choice

EPS = 1e-6  # below this norm a key is not stretched to unit length
ROUTES = ("gram", "readout", "isotropic")
VALUES = ("raw", "unit")
GOLDEN = (math.sqrt(5) - 1) / 2

Layer: TypeAlias = nn.Linear | nn.Conv2d

_serials = count(1)


@dataclass(frozen=True, eq=False)
class KeySum:
    """A sum over keys, and of how many.

    Attributes:
        total: The sum.
        count: Keys in it.
        serial: Of this object, unlike any other's.
    """

    total: Tensor
    count: float
    serial: int = field(default_factory=lambda: next(_serials))


class KeyStore:
    """All captured keys of this process, by weight; weights are not kept alive.

    Attributes:
        sums: By weight, the sums since its last step by kind: ``gram`` is the sum of ``x^ x^T``,
            (n, n); ``readout`` that of ``M x^ x^T``, (m, n); ``unit`` that of ``d x^T`` with unit
            keys, (m, n).
        shapes: By captured weight, the shape of each kind that it can have.
        names: By weight, its name, for messages.
        optimizers: By weight, a weak reference to the optimiser that steps it.
    """

    def __init__(self) -> None:
        self.sums: Any = WeakTensorKeyDictionary()
        self.shapes: Any = WeakTensorKeyDictionary()
        self.names: Any = WeakTensorKeyDictionary()
        self.optimizers: Any = WeakTensorKeyDictionary()
        self._met: Any = WeakTensorKeyDictionary()

    def add(self, weight: Tensor, kind: str, total: Tensor, number: float) -> None:
        """Adds to a sum that is the weight's own."""
        sums = self.sums.setdefault(weight, {})
        before = sums.get(kind)
        if before is not None:
            total, number = before.total + total, before.count + number
        sums[kind] = KeySum(total, number)

    def add_shared(self, weight: Tensor, x: Tensor, how: KeyReader) -> None:
        """Adds the Gram matrix of the keys in ``x``, once for all weights that share it."""
        sums = self.sums.setdefault(weight, {})
        before: KeySum | None = sums.get("gram")
        met = self._met.setdefault(x, {})
        step = (before.serial if before else 0, x._version, how)
        if step not in met:
            met[step] = how.gram(x, before)
        sums["gram"] = met[step]

    def pop(self, weight: Tensor) -> dict[str, KeySum]:
        """Takes what a weight has; nothing of it stays."""
        self._met.clear()  # an input that lives on must not keep sums alive
        taken: dict[str, KeySum] = self.sums.pop(weight, {})
        return taken

    def peek(self, weight: Tensor) -> dict[str, KeySum]:
        """What a weight has."""
        return dict(self.sums.get(weight, {}))

    def momentum(self, weight: Tensor) -> Tensor | None:
        """The momentum of a weight, if an optimiser of the delta rule has one for it."""
        reference: ReferenceType[Any] | None = self.optimizers.get(weight)
        optimizer = reference() if reference is not None else None
        return None if optimizer is None else optimizer.momentum(weight)


KEYS = KeyStore()


# -- from activations to sums -------------------------------------------------------------------


def unit_keys(x: Tensor) -> Tensor:
    """Rows of unit length, in at least float32: bfloat16 would lose the small eigenvalues of S.

    Args:
        x: One key a row. Shape: (N, n).
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    length: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / length.clamp_min(EPS)


@cache
def spread(total: int, number: int) -> Tensor:
    """``number`` distinct indices below ``total``, evenly spread and aliasing with no period.

    Multiples, modulo ``total``, of an odd fraction of it: a plain stride would always meet the
    same columns of an image, and the same positions of a window.
    """
    step = max(1, round(total * GOLDEN))
    while math.gcd(step, total) != 1:
        step += 1
    return torch.arange(number) * step % total


@dataclass(frozen=True)
class KeyReader:
    """How the keys of a layer are read from its input; layers that read alike can share.

    Attributes:
        fraction: Of the tokens that a linear layer's keys are taken from.
        max_keys: Patches that a convolution's are taken from, at most.
        isotropic: Replace S by (tr S / n) I, a control that knows no directions.
        geometry: Of a convolution: kernel, stride, padding (left, right, top, bottom), its mode
            and dilation.
    """

    fraction: float
    max_keys: int
    isotropic: bool = False
    geometry: tuple[Any, ...] | None = None

    def keys(self, x: Tensor) -> Tensor:
        """Unit keys of a layer's input. Shape: (N, n)."""
        if self.geometry is not None:
            return unit_keys(self._patches(x))
        tokens = x.reshape(-1, x.shape[-1])
        number = max(1, round(self.fraction * len(tokens)))
        if 0 < number < len(tokens):
            tokens = tokens[spread(len(tokens), number).to(x.device)]
        return unit_keys(tokens)

    def gram(self, x: Tensor, before: KeySum | None) -> KeySum:
        """``before`` plus the Gram matrix of the keys in ``x``."""
        keys = self.keys(x)
        old, number = (before.total, before.count) if before else (None, 0.0)
        if self.isotropic:
            trace = keys.square().sum() / keys.shape[1]
            total = trace * torch.eye(keys.shape[1], dtype=keys.dtype, device=keys.device)
            total = total if old is None else old + total
        elif old is None:
            total = keys.T @ keys
        else:
            total = torch.addmm(old, keys.T, keys)
        return KeySum(total, number + len(keys))

    def _patches(self, x: Tensor) -> Tensor:
        """Patches of an image batch as the kernel sees them. Shape: (N, C * kh * kw)."""
        assert self.geometry is not None
        kernel, stride, padding, mode, dilation = self.geometry
        x = x if x.ndim == 4 else x[None]
        if any(padding):
            x = F.pad(x, padding, mode="constant" if mode == "zeros" else mode)
        size = [
            (x.shape[2 + i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in (0, 1)
        ]
        total = len(x) * size[0] * size[1]
        index = spread(total, min(total, self.max_keys)).to(x.device)
        image, place = index // (size[0] * size[1]), index % (size[0] * size[1])
        row, column = place // size[1] * stride[0], place % size[1] * stride[1]
        rows = row[:, None] + dilation[0] * torch.arange(kernel[0], device=x.device)  # (N, kh)
        columns = column[:, None] + dilation[1] * torch.arange(kernel[1], device=x.device)
        found = x[image[:, None, None], :, rows[:, :, None], columns[:, None, :]]  # (N, kh, kw, C)
        return found.permute(0, 3, 1, 2).flatten(1)


def reader(layer: Layer, fraction: float, max_keys: int, isotropic: bool) -> KeyReader:
    """How the keys of ``layer`` are read."""
    if isinstance(layer, nn.Linear):
        return KeyReader(fraction, max_keys, isotropic)
    kernel, dilation = layer.kernel_size, layer.dilation
    if isinstance(layer.padding, str):
        total = [
            d * (k - 1) if layer.padding == "same" else 0
            for d, k in zip(dilation, kernel, strict=True)
        ]
        before = [t // 2 for t in total]
        padding = (before[1], total[1] - before[1], before[0], total[0] - before[0])
    else:
        padding = (layer.padding[1],) * 2 + (layer.padding[0],) * 2
    geometry = (kernel, layer.stride, padding, layer.padding_mode, dilation)
    return KeyReader(fraction, max_keys, isotropic, geometry)


# -- hooks --------------------------------------------------------------------------------------


class DeltaKeyHandle:
    """The hooks of :func:`attach_delta_keys`; also a context manager that removes them at its end.

    Attributes:
        names: Of the layers whose keys are captured.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._hooks: list[RemovableHandle] = []
        self._weights: list[Tensor] = []

    def remove(self) -> None:
        """Takes the hooks away, and with them what they left."""
        for hook in self._hooks:
            hook.remove()
        for weight in self._weights:
            KEYS.pop(weight)
            KEYS.shapes.pop(weight, None)
        self.names, self._hooks, self._weights = [], [], []

    def __enter__(self) -> DeltaKeyHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def attach_delta_keys(
    module: nn.Module,
    *,
    key_fraction: float = 0.5,
    max_keys: int = 4096,
    exclude: Sequence[str] = ("lm_head",),
    values: str = "raw",
    route: str = "gram",
) -> DeltaKeyHandle:
    """Captures the keys of all linear layers and ungrouped 2-D convolutions of ``module``.

    Call it once the weights are final: on their device, and sharded if they will be. Keys are taken
    in training mode with gradients enabled, of weights that require one. A layer that is captured
    already is left alone.

    Args:
        module: Any module.
        key_fraction: Of the tokens that enter S, in (0, 1]; 0.5 halves the cost.
        max_keys: Patches of a convolution's input that enter S a forward pass, at most.
        exclude: Names of layers, or their last parts, that keep plain momentum. An output layer
            over a vocabulary belongs here; one that is tied to an embedding is always left out.
        values: "raw" stores what the gradient has, ``d ||x||`` under unit keys. "unit" stores ``d``
            itself, for linear layers: one more product in the backward pass. Its gradients are
            those of the backward pass, so it takes neither part in clipping nor in loss scaling.
        route: "gram"; or "readout", which for linear layers with n > 2 m accumulates ``M x^ x^T``
            instead (4 m n operations a token, not 2 n^2) and needs an optimiser of the delta rule;
            or "isotropic", a control with S = (tr S / n) I.

    Returns:
        A handle to remove the hooks by.

    Raises:
        ZooError: For an argument out of range, a name in ``exclude`` that is no layer of a model
            with layers to capture, or weights that are sharded within rows.
    """
    if not 0 < key_fraction <= 1:
        raise ZooError(f"key_fraction={key_fraction} must lie in (0, 1].")
    if max_keys < 1:
        raise ZooError(f"max_keys={max_keys} must be at least 1.")
    check_choice("route", route, ROUTES)
    check_choice("values", values, VALUES)
    handle = DeltaKeyHandle()
    for name, parameter in module.named_parameters():
        KEYS.names[parameter] = name
    for name, layer in _layers(module, exclude):
        weight = layer.weight
        if weight in KEYS.shapes:
            continue
        check_rows(weight, name, layer)
        wide = isinstance(layer, nn.Linear) and layer.in_features > 2 * layer.out_features
        kind = "readout" if route == "readout" and wide else "gram"
        rows, columns = weight.shape[0], math.prod(weight.shape[1:])
        shapes = {kind: (columns, columns) if kind == "gram" else (rows, columns)}
        how = reader(layer, key_fraction, max_keys, route == "isotropic")
        hook = _Capture(weight, how, kind)
        handle._hooks.append(layer.register_forward_pre_hook(hook))
        if values == "unit" and isinstance(layer, nn.Linear):
            shapes["unit"] = (rows, columns)
            handle._hooks.append(layer.register_forward_hook(_CaptureUnit(weight)))
        if hasattr(weight, "to_local") and shapes.keys() != {"gram"}:
            raise ZooError("Sharded weights take route='gram' and values='raw' only.")
        KEYS.shapes[weight] = shapes
        handle.names.append(name)
        handle._weights.append(weight)
    return handle


def _layers(module: nn.Module, exclude: Sequence[str]) -> Iterator[tuple[str, Layer]]:
    tables = {id(m.weight) for m in module.modules() if isinstance(m, nn.Embedding)}
    for name, layer in module.named_modules():
        if any(name == given or name.endswith(f".{given}") for given in exclude):
            continue
        # A subclass with a forward of its own may do something else with its input.
        linear = isinstance(layer, nn.Linear) and type(layer).forward is nn.Linear.forward
        conv = isinstance(layer, nn.Conv2d) and type(layer).forward is nn.Conv2d.forward
        if not (linear or (conv and layer.groups == 1)) or id(layer.weight) in tables:
            continue
        # A parametrised weight is computed anew in each forward: no optimiser knows it.
        if isinstance(layer.weight, nn.Parameter):
            yield name, layer


def check_rows(weight: Tensor, name: str, layer: Layer | None = None) -> None:
    """Raises a ZooError if a device does not hold whole rows of a weight.

    Args:
        weight: A plain tensor or a ``DTensor``.
        name: For the message.
        layer: Whose weight it is, to compare the shape with.
    """
    for placement in getattr(weight, "placements", ()):
        if (placement.is_shard() and not placement.is_shard(0)) or placement.is_partial():
            raise ZooError(
                f"{name}.weight is placed as {placement}: the delta rule needs whole rows on each "
                "device, so shard it on dimension 0."
            )
    if layer is not None:
        size = (layer.out_features, layer.in_features) if isinstance(layer, nn.Linear) else None
        if weight.ndim < 2 or (size is not None and tuple(weight.shape) != size):
            raise ZooError(
                f"{name}.weight has shape {tuple(weight.shape)}: the delta rule needs whole rows, "
                "which FSDP's flat parameters are not; use fully_shard (ModelParallelStrategy)."
            )


def _full_precision(x: Tensor) -> AbstractContextManager[Any]:
    """Without the autocast around it; the meta device has none."""
    if not torch.amp.is_autocast_available(x.device.type):
        return nullcontext()
    return torch.autocast(x.device.type, enabled=False)


class _Capture:
    """The hook of one layer: adds the keys of its input."""

    def __init__(self, weight: Tensor, how: KeyReader, kind: str) -> None:
        self.weight, self.how, self.kind = weight, how, kind

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, layer: nn.Module, args: tuple[Any, ...]) -> None:
        # FSDP puts another tensor in the layer's place during forward, so the one that the
        # optimiser knows is remembered.
        if not (args and torch.is_grad_enabled() and layer.training and self.weight.requires_grad):
            return
        x = args[0]
        if x.numel() == 0:
            return
        with torch.no_grad(), _full_precision(x):
            if self.kind == "gram":
                KEYS.add_shared(self.weight, x, self.how)
                return
            momentum = KEYS.momentum(self.weight)
            keys = self.how.keys(x)
            if momentum is None:  # before the first step it is zero
                read = keys.new_zeros(self.weight.shape)
            else:
                read = (keys @ momentum.to(keys.dtype).T).T @ keys
            KEYS.add(self.weight, "readout", read, len(keys))


class _CaptureUnit:
    """The hook of one layer: adds what its gradient would be with unit keys."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        if not (layer.training and self.weight.requires_grad and output.requires_grad):
            return
        x, weight = args[0].detach(), self.weight

        def backward(d: Tensor) -> None:
            with torch.no_grad(), _full_precision(x):
                keys = unit_keys(x.reshape(-1, x.shape[-1]))
                values = d.reshape(-1, d.shape[-1]).to(keys.dtype)
                KEYS.add(weight, "unit", values.T @ keys, 1)

        output.register_hook(backward)  # type: ignore[no-untyped-call]
