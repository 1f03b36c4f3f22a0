"""Verifies a published folder: that it is whole, safe, unchanged, and does what it did.

The checksums tell damage and clumsy changes, not a forger: whoever rewrites weights, config and
checksums alike has published another model. Who published it is the hub's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import torch
import yaml
from torch import Tensor

from zoo.card import card_metrics, read_card
from zoo.errors import ZooError
from zoo.hub import (
    check_digest,
    flatten,
    load,
    own_file,
    read_config,
    read_metrics,
    read_reference,
    reference_config,
    reference_output,
)
from zoo.remote import (
    CARD,
    CONFIG,
    FIGURES,
    METRICS,
    NEEDED,
    PUBLISHED,
    REFERENCE,
    TRAINING,
    list_files,
    locate,
    split_source,
)

if TYPE_CHECKING:
    from zoo.base import ZooModule

TOLERANCE = 1e-3  # of the output's largest value: another machine sums in another order
PICKLES = {".bin", ".ckpt", ".joblib", ".npy", ".pickle", ".pkl", ".pt", ".pt2", ".pth"}
BYSTANDERS = (".gitattributes", "LICENSE*", "NOTICE*")  # files of a repository beside the zoo's
PNG = b"\x89PNG\r\n\x1a\n"


def check(source: str | Path, *, cache_dir: str | Path | None = None) -> list[str]:
    """Verifies a folder or a repository; of the latter, first the names, then the files.

    Args:
        source: A folder, or ``org/name`` or ``org/name@revision``.
        cache_dir: Instead of the hub's own cache.

    Returns:
        What was found in order, a sentence each.

    Raises:
        ZooError: At the first thing that is not in order.
    """
    if not Path(source).is_dir():
        for name in list_files(*split_source(source)):
            _check_name(name, str(source))
    return check_folder(locate(source, cache_dir=cache_dir, files=PUBLISHED))


def check_folder(
    folder: Path, *, expected: type[ZooModule] | None = None, exact: bool = False
) -> list[str]:
    """Verifies a hub folder.

    Args:
        folder: Local.
        expected: The class it must hold; ``None`` for any of the catalogue.
        exact: Whether the reference output must be the same to the last bit, as it is on the
            machine that wrote it.

    Returns:
        What was found in order, a sentence each.

    Raises:
        ZooError: At the first thing that is not in order.
    """
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir())
    for name in names:
        _check_name(name, str(folder))
        own_file(folder, name)
    for name in NEEDED:
        own_file(folder, name)
    config = read_config(folder)
    model = load(folder, expected)
    _check_unchanged(folder, names, config)
    gap = _check_reference(folder, model, exact)
    metrics = _check_texts(folder, names)
    reproduced = f"to {gap:.1e} of its largest value" if gap else "to the last bit"
    return [
        f"{len(names)} files, none of them code or a pickle, all as their checksums say.",
        f"{config['_class_name']} loads strictly, with the config that it was published with.",
        f"The reference output is reproduced {reproduced}.",
        f"The card is valid and has a licence{', and the metrics of the run' if metrics else ''}.",
    ]


def _check_name(name: str, where: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise ZooError(f"{where} holds '{name}', a path that leads out of its folder.")
    if path.suffix.lower() in PICKLES:
        raise ZooError(f"{where} holds '{name}': such a file may hold a pickle, which runs code.")
    if not _matches(name, (*PUBLISHED, *BYSTANDERS)):
        raise ZooError(f"{where} holds '{name}', which is no file of a published model.")


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, p) and name.count("/") == p.count("/") for p in patterns)


def _check_unchanged(folder: Path, names: list[str], config: Mapping[str, Any]) -> None:
    digests = config.get("_sha256")
    if not isinstance(digests, dict):
        raise ZooError(f"{folder / CONFIG} has no checksums ('_sha256').")
    for name in names:
        if _matches(name, (CONFIG, CARD, *BYSTANDERS)):  # people edit the card on the hub
            continue
        if name not in digests:
            raise ZooError(f"{folder / name} was added later: {CONFIG} has no checksum of it.")
        check_digest(folder, name, config)
    saved = {key: value for key, value in config.items() if key != "_sha256"}
    if saved != reference_config(folder):
        raise ZooError(f"{folder / CONFIG} was changed: {REFERENCE} came from another config.")


def _check_reference(folder: Path, model: ZooModule, exact: bool) -> float:
    """Returns the largest difference, relative to the largest value."""
    inputs, expected = read_reference(folder)
    path = folder / REFERENCE
    try:
        found = dict(flatten(reference_output(model, inputs)))
    except Exception as error:  # whatever a stranger's input leads a network to
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ZooError(f"{path}: its input is none for {type(model).__name__}: {reason}") from error
    if set(found) != set(expected) or not expected:
        raise ZooError(f"{path} has outputs {sorted(expected)}, the model gives {sorted(found)}.")
    worst = max(difference(found[name], expected[name]) for name in expected)
    if worst > (0 if exact else TOLERANCE):
        raise ZooError(f"{path}: the model's output differs by {worst:.1e} of its largest value.")
    return worst


def difference(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest value expected; infinite if incomparable."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf")
    if found.is_complex():
        found, expected = torch.view_as_real(found), torch.view_as_real(expected)
    if not torch.equal(found.isnan(), expected.isnan()):
        return float("inf")
    found, expected = found.double().nan_to_num(), expected.double().nan_to_num()
    gap = (found - expected).abs().max().item() if found.numel() else 0.0
    return gap / max(expected.abs().max().item(), 1e-12) if gap else 0.0


def _check_texts(folder: Path, names: list[str]) -> bool:
    """Checks card, metrics, training config and figures; returns whether there are metrics."""
    try:
        data = read_card(own_file(folder, CARD).read_text(encoding="utf-8"))
        if TRAINING in names:
            yaml.safe_load((folder / TRAINING).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ZooError(f"{folder}: {' '.join(str(error).split())}") from error
    for name in names:
        if name.startswith(f"{FIGURES}/"):
            with (folder / name).open("rb") as file:
                if file.read(len(PNG)) != PNG:
                    raise ZooError(f"{folder / name} is no PNG file.")
    if METRICS not in names:
        return False
    if card_metrics(data) != read_metrics(folder / METRICS)["metrics"]:
        raise ZooError(f"{folder / CARD} claims other metrics than {METRICS}.")
    return True
