"""Stage 0: the small encoder, the judge and the editor learn; on disk, many runs may share them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from zoo._version import __version__
from zoo.atomic import atomic_path
from zoo.delta_adapter.encoders import TinyEncoder, attribute_loss
from zoo.delta_adapter.flow import draw, noisy
from zoo.delta_adapter.loss import flow_loss
from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.delta_adapter.module import DeltaAdapter

IDENTITY = 0.1  # chance of "leave it as it is" in the editor's training
UNTOLD = 0.1  # chance of an edit that the editor is not told


def encoder_loss(model: DeltaAdapter, batch: Mapping[str, Any]) -> Tensor:
    """Encoder and judge learn attributes, each on pairs that the other never sees."""
    if "source_attributes" not in batch:
        raise ZooError(
            "encoder='tiny' learns attributes, which these data have not: train on "
            "shapes_world or photo_edits, or take a real editor and encoder."
        )
    image = torch.cat([batch["source"], batch["target"]])
    labels = torch.cat([batch["source_attributes"], batch["target_attributes"]])
    odd = (batch["index"] % 2).repeat(2)
    loss = image.new_zeros(())
    for reader, mine in ((model.encoder, odd == 0), (model.judge, odd == 1)):
        assert isinstance(reader, TinyEncoder)
        chosen = mine.nonzero()[:, 0] if bool(mine.any()) else slice(0, 1)
        weight = mine[chosen].float()  # one of no weight if there is none: DDP needs gradients
        logits = reader.attributes(reader(image[chosen]))
        loss = loss + attribute_loss(logits, labels[chosen], weight)
    return loss


def editor_loss(model: DeltaAdapter, batch: Mapping[str, Any]) -> Tensor:
    """The editor learns to edit by the number of the edit, and what edits are when it has none."""
    source, task = batch["source"], batch["task"]
    drawn = torch.rand(len(source), device=source.device)
    keep, untold = drawn < IDENTITY, drawn > 1 - UNTOLD
    target = torch.where(keep.view(-1, 1, 1, 1), source, batch["target"])
    instruction = torch.where(keep, 0, task + 1)
    nothing = model.editor.unprompted(len(source))
    assert nothing is not None
    instruction = torch.where(untold, nothing, instruction)
    grid = model.editor.grid(source)
    context, clean = model.editor.encode(source), model.editor.encode(target)
    noise, t = draw(clean, model.editor.shift(clean.shape[1]))
    z = noisy(clean, noise, t)
    velocity = model.editor.velocity(z, t, context, grid, instruction=instruction)
    return flow_loss(velocity, clean, noise)


def cache_path(folder: str, settings: Mapping[str, Any]) -> Path:
    """The file for these settings: everything that stage 0 depends on."""
    text = json.dumps({**settings, "version": __version__}, sort_keys=True, default=str)
    return Path(folder) / f"stage0-{hashlib.sha256(text.encode()).hexdigest()[:16]}.safetensors"


def save(parts: Mapping[str, nn.Module], path: Path) -> None:
    """Writes the weights of the parts into one file."""
    tensors = {
        f"{name}.{key}": value.detach().cpu().contiguous()
        for name, part in parts.items()
        for key, value in part.state_dict().items()
    }
    with atomic_path(path) as temporary:
        save_file(tensors, temporary)


def load(parts: Mapping[str, nn.Module], path: Path) -> None:
    """Reads what :func:`save` wrote.

    Raises:
        ZooError: If the file is damaged or of other sizes.
    """
    try:
        tensors = load_file(path)
        for name, part in parts.items():
            mine = {k.removeprefix(f"{name}."): v for k, v in tensors.items()}
            part.load_state_dict({k: mine[k] for k in part.state_dict()})
    except Exception as error:  # of safetensors, or a key or shape that is not there
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ZooError(f"{path} holds no stage 0 of this model, delete it: {reason}") from error
