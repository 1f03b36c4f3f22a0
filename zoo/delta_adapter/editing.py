"""Editing by example with what is trained: tensors, photographs, adaptation to a pair."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_warn
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from zoo.atomic import atomic_path
from zoo.base import ZooModule
from zoo.delta_adapter.adapter import DeltaAdapterNetwork, Edit
from zoo.delta_adapter.backbones import Backbone
from zoo.delta_adapter.delta import condition_tokens, semantic_delta
from zoo.delta_adapter.encoders import Encoder
from zoo.delta_adapter.flow import draw_noise, euler
from zoo.errors import ZooError
from zoo.hdr_files import read_photo
from zoo.hdr_files.photo import Source

NO_EDIT = 1e-4  # mean size of a patch's delta below which the exemplar shows no edit
LEAST = 16  # pixels along each side of a picture
ADAPT_LR = 1e-4
ADAPT_BATCH = 8  # augmented copies of the exemplar in a step


class EditByExample(ZooModule):
    """The use of an adapter on a frozen editor; a subclass builds and trains it.

    Attributes:
        encoder: phi.
        editor: The frozen editor, with the adapter's attention installed.
        adapter: From the encoder's features of a pair to an edit.
        condition: What the adapter sees of them.
        strength: s, unless a call says another.
        steps: Of the sampler.
        guidance: Scale of guidance against the null edit; 1 for none.
        image_size: Pixels along a side that photographs are worked on at, at about this area.
    """

    encoder: Encoder
    editor: Backbone
    adapter: DeltaAdapterNetwork
    condition: str
    strength: float
    steps: int
    guidance: float
    image_size: int

    @abstractmethod
    def adapter_loss(self, batch: Mapping[str, Any]) -> Tensor:
        """The adapter's training loss of pairs, ``source`` and ``target``."""

    def forward(
        self,
        query: Tensor,
        source: Tensor,
        target: Tensor,
        steps: int | None = None,
        strength: float | None = None,
        seed: int = 0,
    ) -> Tensor:
        """Applies the change from ``source`` to ``target`` to ``query``.

        Args:
            query: In 0..1; sides are multiples of the editor's token. Shape: (B, 3, H, W).
            source: The exemplar before its edit, of any size. Shape: (B, 3, h, w), or (1, ...) for
                all queries.
            target: The same after it.
            steps: Of the sampler; ``None`` for the model's.
            strength: ``None`` for the model's.
            seed: Of the noise; sample i of a batch draws from (seed, i).

        Returns:
            In 0..1. Shape: (B, 3, H, W).
        """
        return self.sample(query, self.encode_edit(source, target, strength), steps, seed)

    def encode_edit(self, source: Tensor, target: Tensor, strength: float | None = None) -> Edit:
        """What a pair asks for, as keys and values of each block: once for all steps and queries.

        Args:
            source: Before the edit, in 0..1. Shape: (B, 3, h, w).
            target: After it.
            strength: ``None`` for the model's.
        """
        pair = condition_tokens(self.encoder(source), self.encoder(target), self.condition)
        tokens = self.adapter.tokens(pair)
        return self.adapter.edit(tokens, self.strength if strength is None else strength)

    def sample(
        self,
        query: Tensor,
        edit: Edit | None,
        steps: int | None = None,
        seed: int | Sequence[int] = 0,
        instruction: Tensor | None = None,
    ) -> Tensor:
        """Edits queries.

        Args:
            query: In 0..1. Shape: (B, 3, H, W).
            edit: Of :meth:`encode_edit`, of each query or one for all; ``None`` for the editor as
                it is.
            steps: Of the sampler; ``None`` for the model's.
            seed: Of the noise: a number, with which sample i draws from (seed, i), or one of each.
            instruction: Of the tiny editor, in place of a prompt. Shape: (B,), long.

        Returns:
            In 0..1. Shape: (B, 3, H, W).
        """
        grid, context = self.editor.grid(query), self.editor.encode(query)
        count = len(query)
        null = None
        if edit is not None:
            edit = edit.expand(count) if edit.keys.shape[1] == 1 else edit
            if self.guidance != 1:
                null = self.adapter.edit(self.adapter.null_tokens(count), edit.strength)

        def velocity(z: Tensor, t: Tensor) -> Tensor:
            v = self.editor.velocity(z, t, context, grid, edit, instruction)
            if null is None:
                return v
            without = self.editor.velocity(z, t, context, grid, null, instruction)
            return without + self.guidance * (v - without)

        seeds = [1009 * seed + i for i in range(count)] if isinstance(seed, int) else seed
        clean = euler(
            velocity,
            draw_noise(context, seeds),
            steps or self.steps,
            self.editor.shift(context.shape[1]),
        )
        return self.editor.decode(clean, grid).clamp(0, 1)

    # -- use ---------------------------------------------------------------------------------

    def predict_step(self, batch: Mapping[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """The edited queries on the CPU, each of its own size, with their names."""
        edit = self.encode_edit(batch["before"], batch["after"])
        outputs = self._edit_any(batch["query"], edit)
        pictures = outputs.float().cpu()
        return [{"name": n, "image": x} for n, x in zip(batch["name"], pictures, strict=True)]

    def predict(
        self,
        query: Source,
        before: Source,
        after: Source,
        strength: float | None = None,
        seed: int = 0,
    ) -> Image.Image:
        """Applies the change that a before/after pair shows to a photograph.

        Args:
            query: Path, PIL image or array, (H, W, 3). It is worked on at about ``image_size``
                squared pixels; the result has the query's own size.
            before: Of the exemplar.
            after: The same picture, edited.
            strength: 0 for no edit, 1 for the exemplar's; ``None`` for the model's.
            seed: Another one gives another plausible result.

        Raises:
            ZooError: If a picture is unreadable or too small, or those of the pair differ in size.
        """
        picture = self._picture(query, "The query")
        source, target = self._pair(before, after)
        with self.evaluating():
            delta = semantic_delta(self.encoder(source), self.encoder(target))
            if float(delta.norm(dim=-1).mean()) < NO_EDIT:
                rank_zero_warn("There is no edit in the exemplar: before and after are equal.")
            edit = self.encode_edit(source, target, strength)
            output = self._edit_any(picture, edit, seed)
        return _to_image(output[0])

    edit = predict

    def _edit_any(self, query: Tensor, edit: Edit, seed: int = 0) -> Tensor:
        """Queries of any size: worked on at the editor's, and brought back to their own."""
        output = self.sample(self._fit_size(query), edit, seed=seed)
        if output.shape == query.shape:
            return output
        size = list(query.shape[-2:])
        return F.interpolate(output, size, mode="bicubic", antialias=True).clamp(0, 1)

    def _fit_size(self, image: Tensor) -> Tensor:
        """Resizes to about ``image_size`` squared pixels, sides multiples of the editor's token."""
        height, width = image.shape[-2:]
        scale, factor = self.image_size / math.sqrt(height * width), self.editor.factor
        size = [max(1, round(side * scale / factor)) * factor for side in (height, width)]
        if size == [height, width]:
            return image
        return F.interpolate(image, size, mode="bicubic", antialias=True).clamp(0, 1)

    def _picture(self, source: Source, where: str) -> Tensor:
        pixels = read_photo(source, where)
        if min(pixels.shape[:2]) < LEAST:
            raise ZooError(
                f"{where} has {pixels.shape[1]}x{pixels.shape[0]} pixels: expected at least "
                f"{LEAST} along each side."
            )
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].to(self.device)

    def _pair(self, before: Source, after: Source) -> tuple[Tensor, Tensor]:
        source = self._picture(before, "The exemplar's 'before'")
        target = self._picture(after, "The exemplar's 'after'")
        if source.shape != target.shape:
            sizes = " and ".join(f"{x.shape[-1]}x{x.shape[-2]}" for x in (source, target))
            raise ZooError(f"Before and after are {sizes} pixels: expected one size.")
        return source, target

    def write_prediction(self, prediction: Mapping[str, Any], path: Path) -> list[Path]:
        """Writes ``<name>.png``."""
        path = path.with_name(f"{path.name}.png")
        with atomic_path(path) as temporary:
            _to_image(prediction["image"]).save(temporary)
        return [path]

    def exportable(self) -> NoReturn:
        """Says why there is no graph to export."""
        raise ZooError(
            "DeltaAdapter is not exported: its sampler calls the editor many times on noise; "
            "export model.editor.transformer and model.adapter, and sample by yourself."
        )

    def example_inputs(self) -> dict[str, Tensor]:
        """A ramp, and a pair of which the second is the first with red and blue exchanged."""
        side = max(32, 2 * self.editor.factor)
        ramp = torch.linspace(0, 1, side).expand(side, side)
        query = torch.stack([ramp, ramp.T, 1 - ramp])[None]
        source = torch.stack([ramp.T, 0.5 * ramp, ramp])[None]
        return {"query": query, "source": source.clone(), "target": source.flip(1)}

    def adapt(self, before: Source, after: Source, steps: int = 100, seed: int = 0) -> list[float]:
        """Test-time adaptation: trains the resampler on one exemplar pair, augmented.

        It changes the model; load it again to undo that.

        Args:
            before: Path, PIL image or array, as for :meth:`predict`.
            after: The same picture, edited.
            steps: Of AdamW at 1e-4; 50 to 200 are useful.
            seed: Of the draws.

        Returns:
            The loss of each step.
        """
        source, target = (
            self._fit_size(x).expand(ADAPT_BATCH, -1, -1, -1) for x in self._pair(before, after)
        )
        batch = {"source": source, "target": target, "before": source, "after": target}
        flags = [(p, p.requires_grad) for p in self.parameters()]
        training = self.training
        devices = [self.device] if self.device.type == "cuda" else []
        losses = []
        try:
            self.eval().requires_grad_(False)
            self.adapter.resampler.requires_grad_(True)
            optimizer = torch.optim.AdamW(self.adapter.resampler.parameters(), lr=ADAPT_LR)
            with torch.enable_grad(), torch.random.fork_rng(devices):
                torch.manual_seed(seed)
                for _ in range(steps):
                    optimizer.zero_grad()
                    loss = self.adapter_loss(batch)
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                    losses.append(float(loss.detach()))
        finally:
            for parameter, trainable in flags:
                parameter.requires_grad_(trainable)
            self.train(training)
        return losses


def _to_image(picture: Tensor) -> Image.Image:
    """Shape: (3, H, W), in 0..1."""
    pixels = (255 * picture.clamp(0, 1)).round().byte().permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(np.ascontiguousarray(pixels))
