"""Delta-Adapter as a LightningModule: apply to a photo the change that one before/after pair shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MetricCollection

from zoo.atomic import atomic_path
from zoo.base import ZooModule
from zoo.delta_adapter import backbones, encoders, report, stage0
from zoo.delta_adapter.adapter import DeltaAdapterNetwork, Edit
from zoo.delta_adapter.delta import (
    CONDITIONS,
    augment_pair,
    condition_tokens,
    drop_tokens,
    semantic_delta,
)
from zoo.delta_adapter.flow import (
    clean_estimate,
    draw_noise,
    draw_times,
    euler,
    noisy,
    resolution_shift,
)
from zoo.delta_adapter.loss import consistency_loss, flow_loss
from zoo.errors import ZooError, did_you_mean
from zoo.hdr_files import read_photo
from zoo.hdr_files.photo import Source
from zoo.reproducible import global_seed
from zoo.stages import Stage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_EDIT = 1e-4  # mean size of a patch's delta below which the exemplar shows no edit
IDENTITY = 0.1  # chance of "leave it as it is" in the editor's training
ADAPT_LR = 1e-4
ADAPT_BATCH = 8  # augmented copies of the exemplar in a step


class DeltaAdapter(ZooModule):
    """Editing by example: an adapter feeds the semantic delta of a pair into a frozen editor.

    With the tiny editor and encoder one ``fit`` has three stages: the encoder (and a judge of the
    same kind, on other pictures) learns attributes, the editor learns to edit by instruction, and
    then both are frozen and the adapter trains. A real editor has the last stage only.

    Args:
        backbone: "tiny-flux", "flux-kontext" or "qwen-edit".
        base: Hub id or folder of a real editor; ``None`` for the published one.
        base_revision: Branch, tag or commit on the hub.
        base_sizes: By part ("transformer", "vae"), entries that replace the published config's: a
            smaller part with random weights.
        pretrained: Fetch the weights of editor and encoder; they are never saved with the adapter.
        encoder: "tiny" (with the tiny editor), "siglip2-so400m", or a hub id or folder of a SigLIP.
        encoder_revision: Of it.
        encoder_sizes: Entries that replace its config's: a smaller one with random weights.
        num_edit_tokens: Q. Real scale: 64.
        resampler_layers: L. Real scale: 4.
        adapter_dim: d_a. Real scale: 768.
        out_rank: r, of the output projection W_o' of each block. Real scale: 256.
        strength: s; 0 is no edit, 1 the exemplar's, up to 1.5 more than it.
        consistency_weight: lambda, of the semantic delta consistency loss; 0 for none.
        consistency_t_max: Times below which that loss is used.
        token_drop: Share of a pair's tokens that training hides.
        null_prob: Chance of training without edit: null token, target = source.
        delta_aug: Show the encoder the pair cropped, flipped and turned, the editor as it is.
        condition: "delta"; or for comparison "target" or "pair".
        cross_pair: Chance that the delta is another pair's of the same task, for comparison.
        steps: Of the sampler. Real scale: 28.
        guidance: Scale of guidance against the null edit; 1 for none.
        image_size: Pixels along a side that ``predict`` works at, at about this area. Real: 512.
        instructions: Of the tiny editor: number of edits, and 1.
        attributes: Of the tiny encoder: number of values of each attribute.
        encoder_steps: Optimiser steps of the encoder's stage.
        editor_steps: Of the editor's.
        adapter_steps: Of the adapter's; ``None``: to the end of the training.
        stage0_cache: Folder where the first two stages are kept for other runs with the same
            settings and seed; ``None``: each run makes its own.
        checkpointing: Recompute the editor's activations in the backward pass, for memory.
        lora_items: Test transfers that per-pair LoRA is measured on: each is a training.
        lora_steps: Of such a training.

    Source: arXiv 2605.07940, of which abstract and project page were at hand; sizes and weights are
    our choice.
    """

    monitor: ClassVar[tuple[str, str]] = ("val_l1", "min")
    optimizer_config: Mapping[str, Any] = {
        "class_path": "torch.optim.AdamW",
        "init_args": {"lr": 1e-3, "weight_decay": 1e-2},
    }

    def __init__(
        self,
        backbone: str = backbones.TINY,
        base: str | None = None,
        base_revision: str | None = None,
        base_sizes: dict[str, dict[str, Any]] | None = None,
        pretrained: bool = True,
        encoder: str = encoders.TINY,
        encoder_revision: str | None = None,
        encoder_sizes: dict[str, Any] | None = None,
        num_edit_tokens: int = 8,
        resampler_layers: int = 2,
        adapter_dim: int = 128,
        out_rank: int = 64,
        strength: float = 1.0,
        consistency_weight: float = 0.1,
        consistency_t_max: float = 0.5,
        token_drop: float = 0.3,
        null_prob: float = 0.1,
        delta_aug: bool = True,
        condition: str = "delta",
        cross_pair: float = 0.0,
        steps: int = 8,
        guidance: float = 1.0,
        image_size: int = 32,
        instructions: int = 18,
        attributes: Sequence[int] = (4, 7, 2, 2, 4, 2, 2, 2, 11),
        encoder_steps: int = 600,
        editor_steps: int = 600,
        adapter_steps: int | None = 400,
        stage0_cache: str | None = None,
        checkpointing: bool = False,
        lora_items: int = 0,
        lora_steps: int = 40,
    ) -> None:
        super().__init__()
        _check_name("backbone", backbone, backbones.BACKBONES)
        _check_name("condition", condition, CONDITIONS)
        _check_shares(
            token_drop=token_drop,
            null_prob=null_prob,
            cross_pair=cross_pair,
            consistency_t_max=consistency_t_max,
        )
        tiny = backbone == backbones.TINY
        if tiny != (encoder == encoders.TINY):
            raise ZooError(
                f"backbone={backbone!r} with encoder={encoder!r}: the tiny ones learn together, "
                "and a real editor needs a real encoder."
            )
        attributes = [int(size) for size in attributes]
        self.save_hyperparameters()
        self.condition, self.cross_pair = condition, cross_pair
        self.strength, self.steps, self.guidance = strength, steps, guidance
        self.consistency_weight, self.consistency_t_max = consistency_weight, consistency_t_max
        self.token_drop, self.null_prob, self.delta_aug = token_drop, null_prob, delta_aug
        self.image_size, self.stage0_cache = image_size, stage0_cache
        self.lora_items, self.lora_steps = lora_items, lora_steps

        self.judge: encoders.TinyEncoder | None = None
        self.encoder: encoders.Encoder
        self.editor: backbones.Backbone
        self._frozen: tuple[str, ...] = ()
        adapter_stage = Stage("adapter", ["adapter"], adapter_steps)
        if tiny:
            self.encoder = encoders.TinyEncoder(attributes)
            self.judge = encoders.TinyEncoder(attributes)
            self.editor = backbones.TinyFlux(instructions)
            self.training_stages = (
                Stage("encoder", ["encoder", "judge"], encoder_steps),
                Stage("editor", ["editor"], editor_steps),
                adapter_stage,
            )
        else:
            sized = base_sizes or {}
            self.editor = backbones.build(
                backbone, base, base_revision, sized, pretrained, self.fetch_weights(pretrained)
            )
            source = encoders.SIGLIP_ID if encoder == encoders.SIGLIP else encoder
            self.encoder = encoders.build_siglip(
                source, encoder_revision, encoder_sizes, pretrained
            )
            self.training_stages = (adapter_stage,)
            if pretrained:  # what was fetched is fetched again, the rest is saved
                parts = [f"editor.{part}" for part in backbones.PARTS if part not in sized]
                self._frozen = (*parts, *(() if encoder_sizes else ("encoder",)))
        if checkpointing:
            self.editor.transformer.enable_gradient_checkpointing()
        self.adapter = DeltaAdapterNetwork(
            self.encoder.channels,
            self.encoder.positions,
            condition == "pair",
            adapter_dim,
            num_edit_tokens,
            resampler_layers,
            self.editor.blocks,
            self.editor.heads,
            self.editor.head_dim,
            out_rank,
        )
        self.measure(MetricCollection(report.measures()), **report.test_only())

    @property
    def instructed(self) -> bool:
        """Whether the editor can be told a trained edit by its number."""
        return isinstance(self.editor, backbones.TinyFlux)

    def frozen_modules(self) -> tuple[str, ...]:
        """The fetched parts of a real editor and encoder."""
        return self._frozen

    # -- inference ---------------------------------------------------------------------------

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
        seed: int = 0,
        instruction: Tensor | None = None,
    ) -> Tensor:
        """Edits queries.

        Args:
            query: In 0..1. Shape: (B, 3, H, W).
            edit: Of :meth:`encode_edit`, of each query or one for all; ``None`` for the editor as
                it is.
            steps: Of the sampler; ``None`` for the model's.
            seed: Of the noise.
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

        noise = draw_noise(context.shape, seed, context.device)
        clean = euler(velocity, noise, steps or self.steps)
        return self.editor.decode(clean, grid).clamp(0, 1)

    # -- training ----------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        """Takes the first two stages from the cache, if they are there."""
        if stage != "fit" or self._cache_file() is None:
            return
        path = self._cache_file()
        assert path is not None
        if path.is_file():
            stage0.load(self._stage0_parts(), path)
            self._begin_with_adapter()
            rank_zero_info(f"Encoder and editor are taken from {path}.")

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Puts encoder and editor into the cache once they are trained."""
        path = self._cache_file()
        if path is None or len(self.training_stages) == 1 or self.stage.name != "adapter":
            return
        if self.trainer.is_global_zero and not path.is_file():
            stage0.save(self._stage0_parts(), path)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Notes which stages there are: with a cache there is only the last."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["zoo"]["stages"] = len(self.training_stages)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores the stage, counted as the run counted it that is resumed."""
        count = checkpoint.get("zoo", {}).get("stages", len(self.training_stages))
        if count == 1:
            self.training_stages = self.training_stages[-1:]
        elif len(self.training_stages) == 1 and self._all_stages:
            self.training_stages = self._all_stages
        super().on_load_checkpoint(checkpoint)

    _all_stages: tuple[Stage, ...] = ()

    def _begin_with_adapter(self) -> None:
        from zoo.stages import train_only

        self._all_stages = self.training_stages
        self.training_stages = self.training_stages[-1:]
        self.stage_index = 0
        train_only(self, self.stage.train)

    def _stage0_parts(self) -> dict[str, torch.nn.Module]:
        assert self.judge is not None
        return {"encoder": self.encoder, "judge": self.judge, "editor": self.editor}

    def _cache_file(self) -> Path | None:
        if self.stage0_cache is None or self.judge is None:
            return None
        data = getattr(self.trainer, "datamodule", None)
        names = ("instructions", "attributes", "encoder_steps", "editor_steps")
        settings = {
            **{name: self.hparams[name] for name in names},
            "optimizer": self.optimizer_config,
            "lr_scheduler": self.lr_scheduler_config,
            "data": data.describe() if data is not None else None,
            "batch_size": getattr(data, "batch_size", None),
            "processes": self.trainer.world_size,
            "seed": global_seed(),
        }
        return stage0.cache_path(self.stage0_cache, settings)

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """The loss of the current stage."""
        losses = {
            "encoder": self._encoder_loss,
            "editor": self._editor_loss,
            "adapter": self._adapter_loss,
        }
        loss = losses[self.stage.name](batch)
        self.log("train_loss", loss, prog_bar=True, batch_size=len(batch["source"]))
        return loss

    def _encoder_loss(self, batch: Mapping[str, Any]) -> Tensor:
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
        for reader, mine in ((self.encoder, odd == 0), (self.judge, odd == 1)):
            assert isinstance(reader, encoders.TinyEncoder)
            chosen = mine.nonzero()[:, 0] if bool(mine.any()) else slice(0, 1)
            weight = mine[chosen].float()  # one of no weight if there is none: DDP needs gradients
            logits = reader.attributes(reader(image[chosen]))
            loss = loss + encoders.attribute_loss(logits, labels[chosen], weight)
        return loss

    def _editor_loss(self, batch: Mapping[str, Any]) -> Tensor:
        """The editor learns to edit by the number of the edit."""
        source, task = batch["source"], batch["task"]
        keep = torch.rand(len(source), device=source.device) < IDENTITY
        target = torch.where(keep.view(-1, 1, 1, 1), source, batch["target"])
        instruction = torch.where(keep, 0, task + 1)
        grid = self.editor.grid(source)
        context, clean = self.editor.encode(source), self.editor.encode(target)
        noise, t = self._draw(clean)
        z = noisy(clean, noise, t)
        velocity = self.editor.velocity(z, t, context, grid, instruction=instruction)
        return flow_loss(velocity, clean, noise)

    def _adapter_loss(self, batch: Mapping[str, Any]) -> Tensor:
        """L_fm + lambda L_sdc: the context is the source, and only the delta knows of the target."""
        source, target = batch["source"], batch["target"]
        null = torch.rand(len(source), device=source.device) < self.null_prob
        tokens = self._training_tokens(batch)
        nothing = self.adapter.null_tokens(len(source)).to(tokens.dtype)
        tokens = torch.where(null.view(-1, 1, 1), nothing, tokens)
        wanted = torch.where(null.view(-1, 1, 1, 1), source, target)
        velocity, z, t, clean, noise = self._denoise(source, wanted, self.adapter.edit(tokens))
        loss = flow_loss(velocity, clean, noise)
        if self.consistency_weight > 0:
            counted = (t < self.consistency_t_max) & ~null
            rows = counted.nonzero()[:, 0]
            if len(rows):
                estimate = clean_estimate(z[rows], velocity[rows], t[rows])
                output = self.editor.decode(estimate, self.editor.grid(source), backbones.PREVIEW)
                with torch.no_grad():
                    before, after = (self.encoder(x[rows]) for x in (source, target))
                consistency = consistency_loss(
                    self.encoder(output), before, after, counted[rows]
                )
                loss = loss + self.consistency_weight * consistency
        return loss

    def _denoise(
        self, source: Tensor, wanted: Tensor, edit: Edit
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """One call of the editor at random times: v, z_t, t, z_1 and eps."""
        grid = self.editor.grid(source)
        context, clean = self.editor.encode(source), self.editor.encode(wanted)
        noise, t = self._draw(clean)
        z = noisy(clean, noise, t)
        return self.editor.velocity(z, t, context, grid, edit), z, t, clean, noise

    def _draw(self, clean: Tensor) -> tuple[Tensor, Tensor]:
        mu = resolution_shift(clean.shape[1])
        return torch.randn_like(clean), draw_times(len(clean), mu, clean.device)

    def _training_tokens(self, batch: Mapping[str, Any]) -> Tensor:
        """Edit tokens of the pair, with leak control."""
        source, target = batch["source"], batch["target"]
        if self.cross_pair > 0:
            if "before" not in batch:
                raise ZooError("cross_pair needs a second pair of each task: set --data.others true.")
            other = torch.rand(len(source), device=source.device) < self.cross_pair
            other = other.view(-1, 1, 1, 1)
            source = torch.where(other, batch["before"], source)
            target = torch.where(other, batch["after"], target)
        if self.delta_aug:
            source, target = augment_pair(source, target)
        with torch.no_grad():
            pair = condition_tokens(self.encoder(source), self.encoder(target), self.condition)
        return self.adapter.tokens(pair, drop_tokens(pair, self.token_drop))

    def adapt(
        self, before: Source, after: Source, steps: int = 100, seed: int = 0
    ) -> list[float]:
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
                    loss = self._adapter_loss(batch)
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                    losses.append(float(loss.detach()))
        finally:
            for parameter, trainable in flags:
                parameter.requires_grad_(trainable)
            self.train(training)
        return losses

    # -- evaluation --------------------------------------------------------------------------

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """Updates the errors of transfers; before the adapter trains, those of the query itself."""
        waiting = self.trainer.training or self.trainer.validating
        if waiting and len(self.training_stages) > 1 and self.stage.name != "adapter":
            output: Tensor = batch["query"]
        else:
            output = self._evaluate(batch)
        report.validate(self, output, batch)
        return output

    def test_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """Updates the errors by group, and those of the baselines."""
        output = self._evaluate(batch)
        report.test(self, output, batch)
        return output

    def _evaluate(self, batch: Mapping[str, Any]) -> Tensor:
        output: Tensor = self(
            batch["query"], batch["before"], batch["after"], seed=int(batch["index"][0])
        )
        return output

    def on_test_epoch_end(self) -> None:
        """Logs what was measured: data without combinations, say, have no error of theirs."""
        metrics = self.test_metrics
        images = torch.stack([m.images for m in metrics.values()])  # type: ignore[misc]
        images = self.trainer.strategy.reduce(images.to(self.device), reduce_op="sum")
        names = set(report.measured(metrics, images))
        self.log_dict({name: metric for name, metric in metrics.items() if name in names})

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
        training = self.training
        try:
            with torch.inference_mode():
                self.eval()
                delta = semantic_delta(self.encoder(source), self.encoder(target))
                if float(delta.norm(dim=-1).mean()) < NO_EDIT:
                    rank_zero_warn("There is no edit in the exemplar: before and after are equal.")
                edit = self.encode_edit(source, target, strength)
                output = self._edit_any(picture, edit, seed)
        finally:
            self.train(training)
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
        if min(pixels.shape[:2]) < 16:
            raise ZooError(
                f"{where} has {pixels.shape[1]}x{pixels.shape[0]} pixels: expected at least 16 "
                "along each side."
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
            "DeltaAdapter is not exported: its sampler calls the editor many times on random noise; "
            "export model.editor.transformer and model.adapter, and sample in your own program."
        )

    def example_inputs(self) -> dict[str, Tensor]:
        """A ramp, and a pair of which the second is the first with red and blue exchanged."""
        side = max(32, 2 * self.editor.factor)
        ramp = torch.linspace(0, 1, side).expand(side, side)
        query = torch.stack([ramp, ramp.T, 1 - ramp])[None]
        source = torch.stack([ramp.T, 0.5 * ramp, ramp])[None]
        return {"query": query, "source": source.clone(), "target": source.flip(1)}

    def figures(self, batch: Mapping[str, Any], outputs: Any) -> dict[str, Figure]:
        """Exemplar, query, its edits at growing strength, and the truth."""
        from zoo.delta_adapter.figure import draw

        return draw(self, batch)


def _to_image(picture: Tensor) -> Image.Image:
    """Shape: (3, H, W), in 0..1."""
    pixels = (255 * picture.clamp(0, 1)).round().byte().permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(np.ascontiguousarray(pixels))


def _check_name(option: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise ZooError(
            f"{option}={name!r} is unknown: expected {', '.join(known)}.{did_you_mean(name, known)}"
        )


def _check_shares(**given: float) -> None:
    for name, value in given.items():
        if not 0 <= value <= 1:
            raise ZooError(f"{name}={value} must lie in 0..1.")
