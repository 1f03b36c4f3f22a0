"""Exports the inference graph of a model, for programs without the zoo or without Python."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from zoo.atomic import atomic_path
from zoo.check import difference
from zoo.errors import ZooError, missing_extra
from zoo.hub import flatten, reference_output

if TYPE_CHECKING:
    from zoo.base import ZooModule

FORMATS = {"onnx": ".onnx", "torch_export": ".pt2"}
TOLERANCE = 1e-4  # of the output's largest value: a runtime fuses and orders sums in its own way


@dataclass(frozen=True)
class Exportable:
    """What a method's ``exportable()`` returns: its ``predict`` as a graph of tensors.

    Attributes:
        module: From raw inputs as tensors to what ``predict`` gives, with all its pre- and
            post-processing; tensors in, by name, and a dict of tensors out.
        inputs: A raw input by argument name; its sizes are the graph's.
        expected: What ``predict`` gave for it, with the names of the module's outputs.
        dynamic_shapes: Sizes that stay free, as :func:`torch.export.export` takes them.
    """

    module: nn.Module
    inputs: Mapping[str, Tensor]
    expected: Mapping[str, Tensor]
    dynamic_shapes: Mapping[str, Any] | None = None


def export(model: ZooModule, path: Path, format: str) -> Path:
    """Writes the inference graph, if it gives what the model gives.

    A method says how in an optional ``exportable()``, which returns an :class:`Exportable`, or
    raises a :class:`ZooError` with the reason why there is no graph. Without one, the graph is
    ``forward`` on ``example_inputs``. In ONNX, where an output must not be named as an input is,
    it ends in ``_out``.

    Args:
        model: Any method's; it is left as it was.
        path: Of the file; the suffix is added if there is none.
        format: "onnx" or "torch_export".

    Returns:
        The path of the file.

    Raises:
        ZooError: If the method cannot be exported, a package is missing, or the graph gives
            something else than the model; then nothing is written.
    """
    if format not in FORMATS:
        raise ZooError(f"Unknown format '{format}': there are {', '.join(FORMATS)}.")
    path = path if path.suffix else path.with_suffix(FORMATS[format])
    name = type(model).__name__
    device, training = model.device, model.training
    write = _write_onnx if format == "onnx" else _write_program
    try:
        with torch.no_grad(), _quiet():
            what = _exportable(model.cpu().eval())
            program = _trace(name, what)
            with atomic_path(path) as temporary:
                _compare(name, write(program, what, temporary), what.expected)
    finally:
        model.to(device).train(training)
    return path


def _exportable(model: ZooModule) -> Exportable:
    hook = getattr(model, "exportable", None)
    if hook is not None:
        found: Exportable = hook()
        return found
    inputs = model.example_inputs()
    return Exportable(model, inputs, dict(flatten(reference_output(model, inputs))))


def _trace(name: str, what: Exportable) -> torch.export.ExportedProgram:
    try:
        return torch.export.export(
            what.module, (), dict(what.inputs), dynamic_shapes=what.dynamic_shapes
        )
    except Exception as error:  # of whatever kind the tracer meets in the method's code
        raise ZooError(f"{name} cannot be exported: {_reason(error)}") from error


def _write_program(
    program: torch.export.ExportedProgram, what: Exportable, path: Path
) -> dict[str, Tensor]:
    torch.export.save(program, path)
    return dict(flatten(torch.export.load(path).module()(**what.inputs)))


def _write_onnx(
    program: torch.export.ExportedProgram, what: Exportable, path: Path
) -> dict[str, Tensor]:
    try:
        import_module("onnxscript")  # PyTorch's converter needs it, and it needs onnx
        onnxruntime = import_module("onnxruntime")
    except ImportError as error:
        raise missing_extra(str(error.name), "export") from error
    names = list(dict(flatten(program.module()(**what.inputs))))  # in the graph's order
    unique = [f"{name}_out" if name in what.inputs else name for name in names]
    try:
        onnx = torch.onnx.export(
            program, input_names=list(what.inputs), output_names=unique, dynamo=True, verbose=False
        )
        assert onnx is not None  # it is, without a path to write to
        onnx.save(path, external_data=False)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # the converter's own kinds, one for each of its passes
        raise ZooError(f"The graph has no ONNX form: {_reason(error)}") from error
    feed = {key: value.numpy() for key, value in what.inputs.items()}
    return {k: torch.from_numpy(v) for k, v in zip(names, session.run(unique, feed), strict=True)}


def _compare(name: str, found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    if set(found) != set(expected):
        raise ZooError(f"The graph of {name} gives {sorted(found)}, not {sorted(expected)}.")
    for key, value in expected.items():
        gap = difference(found[key], value)
        if gap > TOLERANCE:
            raise ZooError(
                f"The graph of {name} was not written: its '{key}' differs from predict's by "
                f"{gap:.1e} of the largest value."
            )


def _reason(error: Exception) -> str:
    """The first paragraph of an error in one line."""
    return " ".join((str(error) or type(error).__name__).strip().split("\n\n")[0].split())


@contextmanager
def _quiet() -> Iterator[None]:
    """What the tracer warns of, logs and prints is about its own code, not the user's."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
