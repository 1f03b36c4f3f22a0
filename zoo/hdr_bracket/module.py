"""HDR bracket as a LightningModule: from one photograph to its bracket, and to linear HDR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MetricCollection

from zoo.base import ZooModule
from zoo.display import check_curve, decode
from zoo.errors import ZooError, check_choice
from zoo.hdr_bracket import backbone as backbones
from zoo.hdr_bracket.bracket import (
    CLIPPED,
    GAIN_ERROR,
    check_evs,
    expose,
    keep_input,
    mean_weights,
    merge,
    perturb,
)
from zoo.hdr_bracket.cache import BracketCache
from zoo.hdr_bracket.fusion import PRIORS, FusionUNet
from zoo.hdr_bracket.loss import EPS, log2_radiance, picture_loss, radiance_loss
from zoo.hdr_bracket.perceptual import PERCEPTUAL, check_perceptual
from zoo.hdr_bracket.report import compare, measures, test_only, update
from zoo.hdr_bracket.result import HDRResult
from zoo.hdr_bracket.upsample import joint_bilateral_upsample, shrink
from zoo.hdr_files import read_photo
from zoo.hdr_files.photo import Source
from zoo.reproducible import global_seed
from zoo.stages import Stage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHOICES = {
    "task": ("hdr", "all_in_focus"),
    "baseline": ("bracket", "direct"),
    "condition": ("reexpose", "repeat"),
    "train": ("full", "temporal", "lora"),
    "fusion": ("unet", "triangle", "contrast", "mean"),
}
TINY = "tiny"


class HDRBracket(ZooModule):
    """Single-shot HDR: an exposure bracket generated as a video, then fused pixel by pixel.

    Training has two stages in one ``fit``: the video diffusion model, then the fusion network on
    brackets that it sampled and on true ones.

    Args:
        task: "hdr", or "all_in_focus": the bracket is a focal stack, the result the picture with
            everything in focus.
        evs: Exposures of the frames in stops relative to the input, rising, 0 among them. Real
            scale: -6 to 6 in steps of 2.
        focus_frames: Frames of a focal stack.
        backbone: "tiny" for a network trained from nothing, or the hub id (or folder) of an
            image-to-video model in the layout of Stable Video Diffusion.
        backbone_revision: Branch, tag or commit on the hub.
        backbone_sizes: By part ("unet", "vae", "image_encoder"), entries that replace the
            published config's: a smaller part with random weights.
        pretrained: Fetch the backbone's weights.
        channels: Of the tiny network's two levels.
        heads: Of attention at these levels.
        condition: The condition frames: "reexpose", the input as each frame's exposure would
            show it; or "repeat", the input in each frame.
        train: All of a pretrained network ("full"), its temporal layers and attention
            ("temporal"), or low-rank updates of attention ("lora").
        lora_rank: r of these.
        checkpointing: Recompute the network's activations in the backward pass, for memory.
        fusion: "unet", or without training "triangle" (of "hdr"), "contrast" (of "all_in_focus")
            or "mean" weights.
        fusion_width: Channels of the fusion network at full resolution. Real scale: 32.
        baseline: "direct" makes the same network predict the HDR image at once, for comparison.
        fidelity: Weight of the re-exposed input in the generated frames where it has lost nothing;
            0 for none, the ablation.
        steps: Of the sampler.
        sigma_max: Its first noise level. Real scale: 700.
        guidance: Of the condition; 1 for none.
        condition_dropout: Chance of training without condition, for guidance.
        generator_steps: Optimiser steps of the first stage.
        fusion_steps: Optimiser steps of the second stage.
        ema: Decay of a running average of the generator's weights, which is what samples from the
            second stage on; ``None`` for none.
        cache_size: Sampled brackets that the second stage trains on, on each device.
        cache_dir: Folder for them; ``None`` for the system's temporary folder.
        crf: Display curve of inputs: "srgb", or say "power2.2".
        max_side: Larger photographs get their bracket at this size (only "hdr").
        tile: Side in pixels above which the generator works in tiles.
        perceptual: Further metrics of the test: "jod", of ColorVideoVDP, which needs
            ``pip install "lightning-zoo[peers]"``; "lpips", which fetches AlexNet's weights.

    Source: the paper's abstract; see the modules of this package for what it leaves open.
    """

    monitor: ClassVar[tuple[str, str]] = ("val_pu_psnr", "max")
    optimizer_config: Mapping[str, Any] = {
        "class_path": "torch.optim.AdamW",
        "init_args": {"lr": 2e-3, "weight_decay": 1e-4},
    }

    def __init__(
        self,
        task: str = "hdr",
        evs: Sequence[float] = (-4, -2, 0, 2, 4),
        focus_frames: int = 5,
        backbone: str = TINY,
        backbone_revision: str | None = None,
        backbone_sizes: dict[str, dict[str, Any]] | None = None,
        pretrained: bool = True,
        channels: Sequence[int] = (32, 64),
        heads: Sequence[int] = (2, 4),
        condition: str = "reexpose",
        train: str = "full",
        lora_rank: int = 64,
        checkpointing: bool = False,
        fusion: str = "unet",
        fusion_width: int = 12,
        baseline: str = "bracket",
        fidelity: float = 1.0,
        steps: int = 8,
        sigma_max: float = 80.0,
        guidance: float = 1.0,
        condition_dropout: float = 0.1,
        generator_steps: int = 320,
        fusion_steps: int = 160,
        ema: float | None = None,
        cache_size: int = 128,
        cache_dir: str | None = None,
        crf: str = "srgb",
        max_side: int = 512,
        tile: int = 256,
        perceptual: Sequence[str] = (),
    ) -> None:
        super().__init__()
        chosen = {"task": task, "baseline": baseline, "condition": condition}
        for option, value in {**chosen, "train": train, "fusion": fusion}.items():
            check_choice(option, value, CHOICES[option])
        for name in perceptual:
            check_choice("perceptual", name, PERCEPTUAL)
        if ema is not None and not 0 <= ema < 1:
            raise ZooError(f"ema={ema} must lie in 0..1, below 1.")
        check_curve(crf)
        check_evs(evs)
        if not 0 <= fidelity <= 1:
            raise ZooError(f"fidelity={fidelity} must lie in 0..1.")
        if (task, fusion) in (("all_in_focus", "triangle"), ("hdr", "contrast")):
            raise ZooError(
                f"fusion={fusion!r} with task={task!r}: triangles weigh exposures (task 'hdr'), "
                "contrast weighs focus (task 'all_in_focus')."
            )
        if baseline == "direct" and task != "hdr":
            raise ZooError("baseline='direct' predicts HDR images: task must be 'hdr'.")
        if backbone == TINY and train == "lora":
            raise ZooError("train='lora' adapts a pretrained network: backbone must not be 'tiny'.")
        evs, perceptual = [float(e) for e in evs], list(perceptual)
        self.save_hyperparameters()
        self.task, self.baseline, self.crf = task, baseline, crf
        self.reexpose = condition == "reexpose" and task == "hdr"
        # Frames of a focal stack differ in nothing that fusing would have to undo.
        self.evs = evs if task == "hdr" else [0.0] * focus_frames
        if baseline == "direct":
            self.evs = [0.0]
        self.fidelity, self.steps, self.sigma_max = fidelity, steps, sigma_max
        self.guidance, self.condition_dropout = guidance, condition_dropout
        self.cache_size, self.cache_dir = cache_size, cache_dir
        self.max_side, self.perceptual = max_side, perceptual
        self.cache: BracketCache | None = None

        step = (self.evs[-1] - self.evs[0]) / max(len(self.evs) - 1, 1)
        if backbone == TINY:
            shown = self.evs if self.reexpose else None
            self.generator = backbones.build_tiny(task, channels, heads, shown, step, tile)
        else:
            adapted = train != "full"  # then the network's own weights are in no checkpoint
            fetch = {"unet": pretrained if adapted else self.fetch_weights(pretrained)}
            fetch |= dict.fromkeys(("vae", "image_encoder"), pretrained)
            self.generator = backbones.build_svd(
                backbone, backbone_revision, backbone_sizes or {}, fetch, step, tile
            )
        unet = self.generator.unet
        if checkpointing:
            unet.enable_gradient_checkpointing()
        if train == "lora":
            backbones.add_lora(unet, lora_rank)
        trained = backbones.trainable_modules(unet, train) if backbone != TINY else [""]
        self._frozen: tuple[str, ...] = ()
        if backbone != TINY and pretrained:
            sized = backbone_sizes or {}
            leaves = backbones.frozen_leaves(unet, trained) if trained != [""] else []
            self._frozen = tuple(f"generator.unet.{leaf}" for leaf in leaves if "unet" not in sized)
            self._frozen += () if "vae" in sized else ("generator.codec",)
            self._frozen += () if "image_encoder" in sized else ("generator.embedder",)

        prior = "triangle" if task == "hdr" else "contrast"
        self.rule, self.fusion = fusion, None
        if fusion == "unet" and baseline == "bracket":
            self.fusion = FusionUNet(len(self.evs), fusion_width, prior)
        names = [f"generator.unet.{name}".rstrip(".") for name in trained]
        if backbone == TINY:
            names.append("generator.embedder")
        self.training_stages = (Stage("generator", names, generator_steps, average=ema),)
        if self.fusion is not None:
            self.training_stages += (Stage("fusion", ["fusion"], fusion_steps),)
        bracketed = baseline == "bracket"
        self.measure(
            MetricCollection(measures(task)),
            **test_only(task, crf, self.fusion is not None, bracketed, perceptual),
        )

    def setup(self, stage: str) -> None:
        """Looks for what the test's metrics need, before training starts."""
        if stage in ("fit", "test"):
            check_perceptual(self.perceptual)

    def frozen_modules(self) -> tuple[str, ...]:
        """Pretrained parts that no stage trains."""
        return self._frozen

    # -- inference ---------------------------------------------------------------------------

    def forward(self, image: Tensor, seed: int = 0) -> dict[str, Tensor]:
        """From photographs to linear images.

        Args:
            image: Display-encoded, 0..1. Shape: (B, 3, H, W).
            seed: Of the sampler's noise; sample i of a batch draws from (seed, i).

        Returns:
            ``hdr``: linear, float32, 1 = the input's white (of the task "all_in_focus": the sharp
            picture), (B, 3, H, W); ``frames``, display-encoded, (B, N, 3, H, W); ``weights``,
            which sum to 1 over the frames, (B, N, H, W). Above ``max_side``, frames are those of
            the enlarged result.
        """
        if image.ndim != 4 or image.shape[1] != 3:
            raise ZooError(f"forward got the shape {tuple(image.shape)}: expected (B, 3, H, W).")
        if self.task == "hdr" and max(image.shape[-2:]) > self.max_side:
            return self._reduced(image, seed)
        if self.baseline == "direct":
            hdr = self._direct(image)
            ones = torch.ones_like(hdr[:, :1])
            return {"hdr": hdr, "frames": image[:, None], "weights": ones}
        frames = self.bracket(image, seed)
        weights = self.weights(frames)
        return {"hdr": self.merge(frames, weights), "frames": frames, "weights": weights}

    def bracket(self, image: Tensor, seed: int = 0, focus: Tensor | None = None) -> Tensor:
        """Samples the frames, and puts the input where it is known.

        Args:
            image: Display-encoded, 0..1. Shape: (B, 3, H, W).
            seed: Of the noise.
            focus: Of the task "all_in_focus": the frame that the input is, -1 if unknown. Shape:
                (B,).

        Returns:
            Display-encoded. Shape: (B, N, 3, H, W).
        """
        height, width = image.shape[-2:]
        multiple = self.generator.codec.multiple
        padding = (0, -width % multiple, 0, -height % multiple)
        padded = F.pad(image, padding, mode="replicate")
        reference = self.reference(padded)
        shape = self.generator.noise_shape(reference)
        noise = torch.stack([_noise(shape, seed, i) for i in range(len(image))]).to(image.device)
        frames = self.generator.sample(
            padded, reference, noise, self.steps, self.sigma_max, self.guidance
        )[..., :height, :width]
        if self.task == "hdr":
            return keep_input(frames, image, self.evs, self.fidelity, self.crf)
        if focus is not None:
            is_input = torch.arange(len(self.evs), device=image.device) == focus[:, None]
            frames = torch.where(is_input.view(*is_input.shape, 1, 1, 1), image[:, None], frames)
        return frames

    def reference(self, image: Tensor) -> Tensor:
        """The condition frames of an input. Shape: (B, 3, H, W) to (B, N, 3, H, W)."""
        if self.reexpose:
            return expose(decode(image, self.crf), self.evs, self.crf)
        return image[:, None].expand(-1, len(self.evs), -1, -1, -1)

    def weights(self, frames: Tensor) -> Tensor:
        """How much of each pixel comes from which frame. Shape: (B, N, H, W)."""
        if self.fusion is not None:
            out: Tensor = self.fusion(frames)
            return out
        if self.rule in PRIORS:
            return PRIORS[self.rule](frames).softmax(dim=1)
        return mean_weights(frames)

    def merge(self, frames: Tensor, weights: Tensor) -> Tensor:
        """The linear image of weighted frames. Shape: (B, 3, H, W)."""
        return merge(frames, weights, self.evs, self.crf)

    def _direct(self, image: Tensor) -> Tensor:
        """The baseline: one call of the network for log2 of what the input lacks."""
        height, width = image.shape[-2:]
        multiple = self.generator.codec.multiple
        padded = F.pad(image, (0, -width % multiple, 0, -height % multiple), mode="replicate")
        reference = padded[:, None]
        condition = self.generator.condition(padded, reference)
        still = torch.zeros(len(image), device=image.device)
        latents = condition.latents[:, :, : self.generator.codec.channels]
        out = self.generator.predict(torch.zeros_like(latents), still, condition)
        stops = F.pixel_shuffle(out[:, 0].float(), self.generator.codec.factor)
        log = log2_radiance(decode(image.float(), self.crf)) + stops[..., :height, :width]
        return (torch.exp2(log.clamp(-8, 16)) - EPS).clamp_min(0)

    def _reduced(self, image: Tensor, seed: int) -> dict[str, Tensor]:
        """Large photographs: the bracket at reduced size, its gain on the input at full size."""
        small = shrink(image, self.max_side)
        out = self(small, seed)
        gain = log2_radiance(out["hdr"]) - log2_radiance(decode(small.float(), self.crf))
        maps = torch.cat([gain, out["weights"]], dim=1)
        enlarged = joint_bilateral_upsample(maps, small.float(), image.float())
        stops, weights = enlarged[:, :3], enlarged[:, 3:]
        hdr = torch.exp2(log2_radiance(decode(image.float(), self.crf)) + stops) - EPS
        hdr = hdr.clamp_min(0)
        frames = expose(hdr, self.evs, self.crf)
        return {"hdr": hdr, "frames": frames, "weights": weights / weights.sum(1, keepdim=True)}

    # -- training ----------------------------------------------------------------------------

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """The loss of the current stage."""
        image, target = batch["image"], batch["target"]
        if self.baseline == "direct":
            weight = 1 + (image >= CLIPPED).any(dim=1, keepdim=True).float()
            loss = radiance_loss(self._direct(image), target, weight)
        elif self.stage.name == "generator":
            lost = (image >= CLIPPED).any(dim=1, keepdim=True).float()
            if self.task != "hdr":
                lost = torch.zeros_like(lost)
            loss = self.generator.loss(
                self.true_frames(batch), image, self.reference(image), lost, self.condition_dropout
            )
        else:
            loss = self._fusion_loss(batch)
        self.log("train_loss", loss, prog_bar=True, batch_size=len(image))
        return loss

    def true_frames(self, batch: Mapping[str, Any]) -> Tensor:
        """The noiseless frames of a sample's scene. Shape: (B, N, 3, H, W)."""
        if self.task == "hdr":
            return expose(batch["target"], self.evs, self.crf)
        if "frames" not in batch or batch["frames"].shape[1] != len(self.evs):
            raise ZooError(
                f"task='all_in_focus' trains on focal stacks of {len(self.evs)} frames: set "
                "focus_frames, and data with stacks."
            )
        frames: Tensor = batch["frames"]
        return frames

    def _fusion_loss(self, batch: Mapping[str, Any]) -> Tensor:
        """Half of the samples are brackets from the cache as sampled, half disturbed true ones."""
        assert self.fusion is not None
        gain_error = GAIN_ERROR if self.task == "hdr" else 0.0
        target, frames = batch["target"], perturb(self.true_frames(batch), gain_error=gain_error)
        if self.cache is None:
            self.cache = self._fill_cache()
        half = len(target) // 2 if self.cache is not None else 0
        if half and self.cache is not None:
            sampled, scene = self.cache.draw(half, target.device)
            frames, target = torch.cat([sampled, frames[half:]]), torch.cat([scene, target[half:]])
        fused = self.merge(frames, self.fusion(frames))
        return radiance_loss(fused, target) if self.task == "hdr" else picture_loss(fused, target)

    def _fill_cache(self) -> BracketCache | None:
        loader = getattr(self._trainer, "train_dataloader", None)
        if self.cache_size < 1 or loader is None:
            return None
        cache = BracketCache(self.cache_size, self.cache_dir)

        def sample(batch: Mapping[str, Any], number: int) -> Tensor:
            focus = batch["focus"].to(self.device) if "focus" in batch else None
            return self.bracket(batch["image"].to(self.device), 1_000_000 + number, focus)

        rank, world = self.global_rank, self.trainer.world_size
        return cache if cache.fill(loader, sample, global_seed() or 0, rank, world) else None

    def on_fit_end(self) -> None:
        """Removes the cached brackets."""
        self.cache = None

    # -- evaluation --------------------------------------------------------------------------

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Any]:
        """Updates the errors."""
        out = self._evaluate(batch)
        update(self.val_metrics, "val_", {"": out["hdr"]}, batch, out["weights"])
        return out

    def test_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Any]:
        """Updates the errors, and those of other weights on the same frames."""
        out = self._evaluate(batch)
        estimates = compare(self, batch, out)
        update(self.test_metrics, "test_", estimates, batch, out["weights"])
        return out

    def _evaluate(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        image = batch["image"]
        seed = int(batch["index"][0]) if "index" in batch else 0
        if self.task == "hdr":
            out: dict[str, Any] = self(image, seed)
            return out
        frames = self.bracket(image, seed, batch.get("focus"))
        weights = self.weights(frames)
        return {"hdr": self.merge(frames, weights), "frames": frames, "weights": weights}

    # -- use ---------------------------------------------------------------------------------

    def predict_step(self, batch: Mapping[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """The images with their brackets on the CPU, with the name of each input."""
        out = self(batch["image"])
        clipped = (batch["image"] >= CLIPPED).any(dim=1)
        parts = {key: value.float().cpu() for key, value in out.items()}
        return [
            {"name": name, "clipped": clipped[i].cpu(), **{k: v[i] for k, v in parts.items()}}
            for i, name in enumerate(batch["name"])
        ]

    def predict(self, image: Source, seed: int = 0) -> HDRResult:
        """Makes a linear HDR image (or an all-in-focus one) of one photograph.

        Args:
            image: Path, PIL image or array, (H, W, 3), of any size; EXIF orientation is honoured.
            seed: Another one gives another plausible bracket.

        Returns:
            The image, its bracket, and where each part of it came from.

        Raises:
            ZooError: If the photograph is unreadable, CMYK, or HDR already.
        """
        photo = torch.from_numpy(read_photo(image).copy()).permute(2, 0, 1)[None]
        with self.evaluating():
            out = self(photo.to(self.device), seed)
        first = {key: value[0].float().cpu() for key, value in out.items()}
        return self._result(first, (photo[0] >= CLIPPED).any(dim=0))

    def _result(self, out: Mapping[str, Tensor], clipped: Tensor) -> HDRResult:
        labels = [f"ev{e:+g}" for e in self.evs]
        if self.task != "hdr":
            labels = [f"focus{i}" for i in range(len(self.evs))]
        return HDRResult(
            out["hdr"].permute(1, 2, 0).contiguous().numpy(),
            out["frames"].permute(0, 2, 3, 1).contiguous().numpy(),
            out["weights"].numpy(),
            clipped.numpy(),
            tuple(labels),
        )

    def write_prediction(self, prediction: Mapping[str, Any], path: Path) -> list[Path]:
        """Writes ``<name>.exr``, a tone-mapped ``<name>.png``, and the frames and weights as PNG.

        Of the task "all_in_focus" the ``.png`` is the picture itself.
        """
        result = self._result(prediction, prediction["clipped"])
        files = [result.save(path.with_name(f"{path.name}{s}")) for s in (".exr", ".png")]
        return files + result.save_bracket(path.parent, path.name)

    def exportable(self) -> NoReturn:
        """Says why there is no graph to export."""
        raise ZooError(
            "HDRBracket is not exported: its sampler calls the network many times on random noise; "
            "export model.generator.unet and model.fusion, and sample in your own program."
        )

    def example_inputs(self) -> dict[str, Tensor]:
        """A ramp that clips at its bright end."""
        side = max(16, self.generator.codec.multiple)
        ramp = torch.linspace(0, 1.25, side).clamp(max=1).expand(1, 3, side, side).clone()
        ramp[:, 1] *= 0.9
        return {"image": ramp}

    def figures(self, batch: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Figure]:
        """The first image: input, result, truth and errors, and its bracket with the weights."""
        from zoo.hdr_bracket.figure import draw

        return draw(self, batch, outputs)


def _noise(shape: Sequence[int], seed: int, sample: int) -> Tensor:
    """Standard normal numbers that depend on the seed and the sample alone, on any device."""
    generator = torch.Generator().manual_seed(seed * 1009 + sample)
    return torch.randn(tuple(shape), generator=generator)
