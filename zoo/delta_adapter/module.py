"""Delta-Adapter as a LightningModule: apply the change that one before/after pair shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn
from torchmetrics import MetricCollection

from zoo.delta_adapter import backbones, encoders, report, stage0
from zoo.delta_adapter import pretrained as real
from zoo.delta_adapter.adapter import DeltaAdapterNetwork
from zoo.delta_adapter.delta import CONDITIONS, augment_pair, condition_tokens, drop_tokens
from zoo.delta_adapter.editing import EditByExample
from zoo.delta_adapter.features import FeatureCache
from zoo.delta_adapter.flow import clean_estimate, draw, noisy
from zoo.delta_adapter.loss import consistency_loss, flow_loss
from zoo.errors import ZooError, check_choice
from zoo.reproducible import global_seed
from zoo.stages import Stage, train_only

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from zoo.delta_adapter.metrics import ValueMean


class DeltaAdapter(EditByExample):
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
        cache_features: Folder for the encoder's features of the training pairs, as they are and in
            four augmented views; ``None``: they are computed in each step.
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
        encoder_steps: int = 1500,
        editor_steps: int = 700,
        adapter_steps: int | None = 800,
        stage0_cache: str | None = None,
        cache_features: str | None = None,
        checkpointing: bool = False,
        lora_items: int = 0,
        lora_steps: int = 40,
    ) -> None:
        super().__init__()
        check_choice("backbone", backbone, (backbones.TINY, *real.IDS))
        check_choice("condition", condition, CONDITIONS)
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
        if cache_features is not None and cross_pair > 0:
            raise ZooError("cache_features keeps a pair's own features: cross_pair must be 0.")
        self.cache_features = cache_features
        self.features: FeatureCache | None = None

        self.judge: encoders.TinyEncoder | None = None
        self.encoder: encoders.Encoder
        self.editor: backbones.Backbone
        self._frozen: tuple[str, ...] = ()
        if tiny:
            self.encoder = encoders.TinyEncoder(attributes)
            self.judge = encoders.TinyEncoder(attributes)
            self.editor = backbones.TinyFlux(instructions)
        else:
            sized = base_sizes or {}
            self.editor = real.build(
                backbone, base, base_revision, sized, pretrained, self.fetch_weights(pretrained)
            )
            source = encoders.SIGLIP_ID if encoder == encoders.SIGLIP else encoder
            self.encoder = encoders.build_siglip(
                source, encoder_revision, encoder_sizes, pretrained
            )
            if pretrained:  # what was fetched is fetched again, the rest is saved
                parts = [f"editor.{part}" for part in real.PARTS if part not in sized]
                self._frozen = (*parts, *(() if encoder_sizes else ("encoder",)))
        stages = (
            Stage("encoder", ["encoder", "judge"], encoder_steps),
            Stage("editor", ["editor"], editor_steps),
            Stage("adapter", ["adapter"], adapter_steps),
        )
        self._all_stages = stages if tiny else stages[-1:]
        self.training_stages = self._all_stages
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

    # -- training ----------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        """Takes the first two stages from the cache, if they are there."""
        if stage != "fit" or self._cache_file() is None:
            return
        path = self._cache_file()
        assert path is not None
        if path.is_file():
            stage0.load(self._stage0_parts(), path)
            self.training_stages = self.training_stages[-1:]
            train_only(self, self.stage.train)
            rank_zero_info(f"Encoder and editor are taken from {path}.")

    def on_train_start(self) -> None:
        """Opens the cache of features, if there is to be one."""
        if self.cache_features is None:
            return
        dataset = getattr(self.trainer.train_dataloader, "dataset", None)
        if not isinstance(dataset, Sized):
            raise ZooError("cache_features needs training data of a known number of pairs.")
        shape = self.encoder.positions, self.encoder.channels
        self.features = FeatureCache(len(dataset), shape, self.cache_features)

    def on_fit_end(self) -> None:
        """Removes the cached features."""
        self.features = None

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Puts encoder and editor into the cache when the last stage begins."""
        path = self._cache_file()
        if path is None or self.trainer.global_step != sum(
            stage.steps or 0 for stage in self.training_stages[:-1]
        ):
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
        else:  # the run that is resumed may have filled the cache itself
            self.training_stages = self._all_stages
        super().on_load_checkpoint(checkpoint)

    def _stage0_parts(self) -> dict[str, nn.Module]:
        assert self.judge is not None
        return {"encoder": self.encoder, "judge": self.judge, "editor": self.editor}

    def _cache_file(self) -> Path | None:
        if self.stage0_cache is None or self.judge is None:
            return None
        data = getattr(self.trainer, "datamodule", None)
        described = data.describe() if data is not None else {}
        names = ("instructions", "attributes", "encoder_steps", "editor_steps")
        sizes = {
            f"{name}.{key}": list(value.shape)
            for name, part in self._stage0_parts().items()
            for key, value in part.state_dict().items()
        }
        settings = {
            **{name: self.hparams[name] for name in names},
            "sizes": sizes,
            "optimizer": self.optimizer_config,
            "lr_scheduler": self.lr_scheduler_config,
            "data": {k: v for k, v in described.items() if k not in ("items", "eval_dataset")},
            "batch_size": getattr(data, "batch_size", None),
            "processes": self.trainer.world_size,
            "seed": global_seed(),
        }
        return stage0.cache_path(self.stage0_cache, settings)

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """The loss of the current stage."""
        if self.stage.name == "encoder":
            loss = stage0.encoder_loss(self, batch)
        elif self.stage.name == "editor":
            loss = stage0.editor_loss(self, batch)
        else:
            loss = self.adapter_loss(batch)
        self.log("train_loss", loss, prog_bar=True, batch_size=len(batch["source"]))
        return loss

    def adapter_loss(self, batch: Mapping[str, Any]) -> Tensor:
        """L_fm + lambda L_sdc: the context is the source; only the delta knows of the target."""
        source, target = batch["source"], batch["target"]
        null = torch.rand(len(source), device=source.device) < self.null_prob
        tokens = self._training_tokens(batch)
        nothing = self.adapter.null_tokens(len(source)).to(tokens.dtype)
        tokens = torch.where(null.view(-1, 1, 1), nothing, tokens)
        wanted = torch.where(null.view(-1, 1, 1, 1), source, target)
        grid = self.editor.grid(source)
        context, clean = self.editor.encode(source), self.editor.encode(wanted)
        noise, t = draw(clean, self.editor.shift(clean.shape[1]))
        z = noisy(clean, noise, t)
        velocity = self.editor.velocity(z, t, context, grid, self.adapter.edit(tokens))
        loss = flow_loss(velocity, clean, noise)
        if self.consistency_weight > 0:
            counted = (t < self.consistency_t_max) & ~null
            rows = counted.nonzero()[:, 0]
            if len(rows):
                estimate = clean_estimate(z[rows], velocity[rows], t[rows])
                output = self.editor.decode(estimate, grid, backbones.PREVIEW)
                before, after = (x[rows] for x in self._phi(batch, source, target, False))
                consistency = consistency_loss(self.encoder(output), before, after, counted[rows])
                loss = loss + self.consistency_weight * consistency
        return loss

    def _training_tokens(self, batch: Mapping[str, Any]) -> Tensor:
        """Edit tokens of the pair, with leak control."""
        source, target = batch["source"], batch["target"]
        if self.cross_pair > 0:
            if "before" not in batch:
                raise ZooError(
                    "cross_pair needs a second pair of each task: set --data.others true."
                )
            other = torch.rand(len(source), device=source.device) < self.cross_pair
            other = other.view(-1, 1, 1, 1)
            source = torch.where(other, batch["before"], source)
            target = torch.where(other, batch["after"], target)
        before, after = self._phi(batch, source, target, self.delta_aug)
        pair = condition_tokens(before, after, self.condition)
        return self.adapter.tokens(pair, drop_tokens(pair, self.token_drop))

    @torch.no_grad()
    def _phi(
        self, batch: Mapping[str, Any], source: Tensor, target: Tensor, augmented: bool
    ) -> tuple[Tensor, ...]:
        """Features of both pictures of each pair, cached if there is a cache; (B, P, C) each."""

        def compute(rows: Tensor | slice) -> Tensor:
            pair = source[rows], target[rows]
            seen = augment_pair(*pair) if augmented else pair
            return torch.stack([self.encoder(x) for x in seen], dim=1)

        if self.features is None:
            return compute(slice(None)).unbind(dim=1)
        found = self.features.get(batch["index"], augmented, compute)
        return found.to(source.device).unbind(dim=1)

    # -- evaluation --------------------------------------------------------------------------

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """Updates the errors of transfers; before the adapter trains, those of the query itself."""
        if self.instructed and not bool(self.adapter.up.any()):
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
        """Each sample's noise is its own, however samples are batched and dealt to processes."""
        edit = self.encode_edit(batch["before"], batch["after"])
        return self.sample(batch["query"], edit, seed=batch["index"].tolist())

    def on_test_epoch_end(self) -> None:
        """Logs what was measured: data without combinations, say, have no error of theirs."""
        metrics = dict(self.test_metrics.items())
        images = torch.stack([cast("ValueMean", metric).images for metric in metrics.values()])
        images = self.trainer.strategy.reduce(images.to(self.device), reduce_op="sum")
        counts = zip(metrics.items(), images.tolist(), strict=True)
        self.log_dict({name: metric for (name, metric), count in counts if count})

    def figures(self, batch: Mapping[str, Any], outputs: Any) -> dict[str, Figure]:
        """Exemplar, query, its edits at growing strength, and the truth."""
        from zoo.delta_adapter.figure import draw as draw_transfers

        return draw_transfers(self, batch)


def _check_shares(**given: float) -> None:
    for name, value in given.items():
        if not 0 <= value <= 1:
            raise ZooError(f"{name}={value} must lie in 0..1.")
