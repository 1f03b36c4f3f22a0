"""From a trained module to a hub folder, and back.

A hub folder holds ``model.safetensors``, ``config.json`` (the class's name, its init arguments and
the SHA-256 of each other file), ``reference.safetensors`` (a tiny input and the output that these
weights gave for it) and ``README.md``, the card; beside them ``training.yaml``, ``metrics.json``
and ``figures/`` of the run. Nothing in it is ever unpickled or run: the config may only name a
class of the catalogue, whose arguments are plain values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import lightning
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from zoo._version import __version__
from zoo.atomic import atomic_path, write_json, write_text
from zoo.budget import allocation_limit
from zoo.card import render_card
from zoo.catalog import method_class
from zoo.errors import ZooError, did_you_mean
from zoo.remote import (
    CARD,
    CONFIG,
    METRICS,
    REFERENCE,
    SCHEME,
    TRAINING,
    WEIGHTS,
    sha256,
)
from zoo.remote import locate as locate

if TYPE_CHECKING:
    from zoo.base import ZooModule

M = TypeVar("M", bound="ZooModule")

MAX_JSON_BYTES = 2**20  # a config is a page of text; more is not worth parsing


def from_pretrained(
    name_or_path: str | Path,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    force_download: bool = False,
    map_location: str = "cpu",
) -> ZooModule:
    """Loads a published model of any method; its config says which, among the catalogue only.

    The arguments are those of :meth:`zoo.base.ZooModule.from_pretrained`.

    Raises:
        ZooError: If the files are missing, foreign or incomplete.
    """
    folder = locate(
        name_or_path,
        revision=revision,
        token=token,
        cache_dir=cache_dir,
        local_files_only=local_files_only,
        force_download=force_download,
    )
    return load(folder).to(map_location)


def write_folder(
    model: ZooModule,
    folder: Path,
    *,
    license: str | None = None,
    repo_id: str | None = None,
    metrics: Mapping[str, Any] | None = None,
    figures: Sequence[str] = (),
) -> None:
    """Writes weights, config, reference output and card of a model.

    Args:
        model: Any method's; it is left as it was.
        folder: Created if need be. Each file is replaced whole or not at all.
        license: Of the weights, as an SPDX identifier; the card says "unknown" without one.
        repo_id: Where the card says that the weights are to be found.
        metrics: The content of a run's ``metrics.json``.
        figures: Pictures to show, as paths relative to the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "_class_name": type(model).__name__,
        "_zoo_version": __version__,
        **model.init_args(),
    }
    if metrics is not None:
        write_json(folder / METRICS, metrics)
    _save_tensors(model.state_dict(), folder / WEIGHTS, {"format": "pt"})
    inputs = model.example_inputs()
    outputs = {f"output.{k}": v for k, v in flatten(reference_output(model, inputs))}
    reference = {f"input.{k}": v for k, v in inputs.items()} | outputs
    _save_tensors(reference, folder / REFERENCE, {"config": json.dumps(config)})
    hashed = [name for name in (WEIGHTS, REFERENCE, TRAINING, METRICS) if (folder / name).is_file()]
    digests = {name: sha256(folder / name) for name in [*hashed, *figures]}
    write_json(folder / CONFIG, {**config, "_sha256": digests})
    card = render_card(
        type(model).__name__, license=license, repo_id=repo_id, metrics=metrics, figures=figures
    )
    write_text(folder / CARD, card)


@overload
def load(folder: Path, expected: None = None) -> ZooModule: ...


@overload
def load(folder: Path, expected: type[M]) -> M: ...


def load(folder: Path, expected: type[ZooModule] | None = None) -> ZooModule:
    """Builds the model of a hub folder and loads its weights strictly; it is in eval mode.

    Before there is any memory for them, what the config asks for is held against the size of the
    weights, and the names and shapes in their header against those of the model.

    Args:
        folder: Local.
        expected: The class to load, which the config must name; ``None`` for the catalogue's.

    Raises:
        ZooError: If a file is missing or broken, the class is another one or none of the
            catalogue, or keys or shapes differ; it names them.
    """
    config = read_config(folder)
    named = config["_class_name"]
    if expected is not None and named != expected.__name__:
        raise ZooError(f"{folder} holds a {named}, not a {expected.__name__}.")
    cls: type[ZooModule] = expected or method_class(named)
    weights = own_file(folder, WEIGHTS)
    shapes = _header(weights)
    model = _build(cls, init_args(config), weights, len(shapes))
    _compare_shapes(shapes, model.state_dict(), weights)
    check_digest(folder, WEIGHTS, config)
    model.load_state_dict(_load_tensors(weights))
    return model.eval()


def read_config(folder: Path) -> dict[str, Any]:
    """Reads ``config.json`` of a hub folder.

    Raises:
        ZooError: If it is missing, too large, no JSON, or names no class.
    """
    if not (folder / CONFIG).is_file():
        raise ZooError(f"{folder} is no hub folder: it has no {CONFIG}.")
    path = own_file(folder, CONFIG)
    config = read_json(path)
    if not isinstance(config, dict) or not isinstance(config.get("_class_name"), str):
        raise ZooError(f"{path} names no class: '_class_name' is missing.")
    return config


def read_metrics(path: Path) -> dict[str, Any]:
    """Reads ``metrics.json`` of a test run.

    Raises:
        ZooError: If it is none.
    """
    record = read_json(path)
    metrics = record.get("metrics") if isinstance(record, dict) else None
    if not isinstance(metrics, dict) or not all(isinstance(v, float) for v in metrics.values()):
        raise ZooError(f"{path} is no record of a test run: it has no 'metrics' by name.")
    return record  # type: ignore[no-any-return]


def read_json(path: Path) -> Any:
    """Reads a JSON file of at most a MiB.

    Raises:
        ZooError: If it is too large, or no JSON.
    """
    if path.stat().st_size > MAX_JSON_BYTES:
        raise ZooError(f"{path} has {path.stat().st_size} bytes; at most a MiB is expected.")
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:  # also bad UTF-8, and numbers of 5000 digits
        raise ZooError(f"{path} is no valid JSON: {error}") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


def init_args(config: Mapping[str, Any]) -> dict[str, Any]:
    """The init arguments in a config: what has no leading underscore."""
    return {name: value for name, value in config.items() if not name.startswith("_")}


def own_file(folder: Path, name: str) -> Path:
    """The path of a file in a hub folder.

    Raises:
        ZooError: If it is missing, or a link leads elsewhere: a folder from a stranger must not
            have files of this machine read in its place.
    """
    path = folder / name
    if not path.is_file():
        raise ZooError(f"{folder} has no {name}.")
    root, target = folder.resolve(), path.resolve()
    blobs = root.parent.parent / "blobs"  # where the links of a snapshot in the hub's cache lead
    if not target.is_relative_to(root) and target.parent != blobs:
        raise ZooError(f"{path} is refused: it is a link that leads out of its folder.")
    return path


def check_digest(folder: Path, name: str, config: Mapping[str, Any]) -> None:
    """Compares a file with the SHA-256 in the config, if there is one (``zoo check`` insists).

    Raises:
        ZooError: If they differ.
    """
    digests = config.get("_sha256")
    known = digests.get(name) if isinstance(digests, dict) else None
    if known is not None and sha256(own_file(folder, name)) != known:
        raise ZooError(f"{folder / name} was changed or damaged: its SHA-256 is not {CONFIG}'s.")


# -- a published model in the place of a checkpoint ---------------------------------------------


def is_published(path: str | Path) -> bool:
    """Whether ``--ckpt_path`` names a published model (``hf://org/name``, or a folder)."""
    return str(path).startswith(SCHEME) or Path(path).is_dir()


def read_published(path: str | Path) -> dict[str, Any]:
    """Reads a published model as :func:`zoo.checkpoint.read_checkpoint` reads a ``.ckpt`` file.

    Args:
        path: ``hf://org/name[@revision]``, or a folder.

    Returns:
        ``state_dict``, ``hyper_parameters`` and ``zoo`` as in a checkpoint; no optimiser's state.

    Raises:
        ZooError: As :func:`locate` and :func:`load` do.
    """
    model = load(locate(path))
    return {
        "state_dict": model.state_dict(),
        "hyper_parameters": model.init_args(),
        "zoo": {"class": type(model).__name__, "version": __version__, "stage_index": 0},
        "pytorch-lightning_version": lightning.__version__,
        "epoch": 0,
        "global_step": 0,
    }


class PublishedCheckpointIO(TorchCheckpointIO):
    """Lets the trainer load a published model where it expects a checkpoint."""

    def load_checkpoint(self, path: str | Path, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Reads a published model, or else what it is given."""
        if is_published(path):
            return read_published(path)
        return super().load_checkpoint(path, *args, **kwargs)


# -- tensors ------------------------------------------------------------------------------------


def reference_output(model: ZooModule, inputs: Mapping[str, Tensor]) -> Any:
    """``forward`` of the inputs on the CPU in eval mode, seeded; the model is left as it was."""
    device, training = model.device, model.training
    try:
        with torch.inference_mode(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return model.cpu().eval()(**inputs)
    finally:
        model.to(device).train(training)


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of a nested output with a dotted name each."""
    if isinstance(value, Tensor):
        yield prefix or "value", value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from flatten(item, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, item in enumerate(value):
            yield from flatten(item, f"{prefix}.{index}" if prefix else str(index))


def read_reference(folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The reference input by argument name, and the output by dotted name."""
    tensors = _load_tensors(own_file(folder, REFERENCE))

    def part(prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

    return part("input."), part("output.")


def reference_config(folder: Path) -> Any:
    """The config that gave the reference output, from its file's header; ``None`` if absent."""
    with _opened(own_file(folder, REFERENCE)) as file:
        text = (file.metadata() or {}).get("config")
    try:
        return json.loads(text) if text is not None else None
    except (ValueError, RecursionError):
        return None


def _build(
    cls: type[ZooModule], arguments: Mapping[str, Any], weights: Path, tensors: int
) -> ZooModule:
    from zoo.base import weights_follow

    config = weights.parent / CONFIG
    limit = allocation_limit(cls, weights.stat().st_size, tensors, str(config))
    try:
        with weights_follow(), limit:
            return cls.from_init_args(arguments)
    except ZooError:
        raise
    except Exception as error:  # whatever values of a stranger's config lead a constructor to
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ZooError(f"{config} makes no {cls.__name__}: {reason}") from error


def _save_tensors(tensors: Mapping[str, Any], path: Path, metadata: dict[str, str]) -> None:
    """Writes the same bytes for the same content: safetensors shuffles several metadata."""
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise ZooError(
                f"'{name}' of the state is a {type(value).__name__}; only tensors are published."
            )
    # A clone each: safetensors refuses tensors that share memory, as tied weights do.
    whole = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    with atomic_path(path) as temporary:
        save_file(whole, temporary, metadata=metadata)


def _load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ZooError(f"{path} is no valid safetensors file: {error}") from error


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise ZooError(f"{path} is no valid safetensors file: {error}") from error


def _header(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor of a file, none of which is read."""
    with _opened(path) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def _compare_shapes(
    found: Mapping[str, tuple[int, ...]], expected: Mapping[str, Tensor], path: Path
) -> None:
    for key in found:
        if key not in expected:
            raise ZooError(f"{path} has a foreign key '{key}'.{did_you_mean(key, expected)}")
    for key, tensor in expected.items():
        if key not in found:
            raise ZooError(f"{path} lacks the key '{key}'.{did_you_mean(key, found)}")
        if found[key] != tuple(tensor.shape):
            raise ZooError(
                f"{path}: '{key}' has shape {found[key]}, "
                f"but its config makes {tuple(tensor.shape)}."
            )
