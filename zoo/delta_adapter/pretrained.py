"""Real editors, from the hub, a folder, or random: FLUX.1 Kontext and Qwen-Image-Edit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLQwenImage,
    FluxTransformer2DModel,
    QwenImageTransformer2DModel,
)
from torch import Tensor
from torch.nn import functional as F

from zoo.delta_adapter.adapter import Edit
from zoo.delta_adapter.backbones import Backbone, FluxEditor, Grid
from zoo.errors import ZooError

IDS = {"flux-kontext": "black-forest-labs/FLUX.1-Kontext-dev", "qwen-edit": "Qwen/Qwen-Image-Edit"}
PARTS = ("transformer", "vae")
ALTERNATIVE = {
    "flux-kontext": "backbone='qwen-edit' (Apache-2.0) needs no licence to be accepted",
    "qwen-edit": "backbone='flux-kontext' is another choice, gated and non-commercial",
}
FLUX_CONFIG: Mapping[str, Any] = {"guidance_embeds": True}
FLUX_VAE: Mapping[str, Any] = {
    "block_out_channels": (128, 256, 512, 512),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 2,
    "latent_channels": 16,
    "scaling_factor": 0.3611,
    "shift_factor": 0.1159,
    "use_quant_conv": False,
    "use_post_quant_conv": False,
}
FLUX_PROMPT = (512, 4096)  # T5 of the empty prompt, padded as the pipeline does
FLUX_POOLED = 768
QWEN_PROMPT = 5  # tokens that remain of the chat template around an empty prompt
DISTILLED_GUIDANCE = 2.5  # the value that FLUX Kontext's authors sample with


class FluxKontext(FluxEditor):
    """FLUX.1 Kontext with the empty prompt.

    Args:
        transformer: Frozen.
        vae: Frozen; pictures are packed by 2x2 cells of its latents.
        prompt: T5's embedding of the empty prompt. Shape: (T, 4096).
        pooled: CLIP's. Shape: (768,).
    """

    def __init__(
        self,
        transformer: FluxTransformer2DModel,
        vae: AutoencoderKL,
        prompt: Tensor,
        pooled: Tensor,
    ) -> None:
        super().__init__(transformer)
        self.vae = vae
        self.requires_grad_(False).eval()
        self.factor = 2 ** len(vae.config.block_out_channels)
        self.register_buffer("prompt", prompt)
        self.register_buffer("pooled", pooled[None])

    @torch.no_grad()
    def encode(self, image: Tensor) -> Tensor:
        """Shape: (B, 3, H, W) to (B, N, 64)."""
        config = self.vae.config
        mode = self.vae.encode((2 * image - 1).to(self.vae.dtype)).latent_dist.mode().float()
        return _pack((mode - config.shift_factor) * config.scaling_factor)

    def decode(self, tokens: Tensor, grid: Grid, longest: int | None = None) -> Tensor:
        """Shape: (B, N, 64) to (B, 3, H, W)."""
        config = self.vae.config
        latents = _unpack(tokens, grid, longest, self.factor // 2)
        latents = latents / config.scaling_factor + config.shift_factor
        image: Tensor = self.vae.decode(latents.to(self.vae.dtype)).sample
        return (image.float() + 1) / 2

    def velocity(
        self,
        z: Tensor,
        t: Tensor,
        context: Tensor,
        grid: Grid,
        edit: Edit | None = None,
        instruction: Tensor | None = None,
    ) -> Tensor:
        """See :class:`Backbone`."""
        prompt = self.prompt.expand(len(z), -1, -1)
        guided = DISTILLED_GUIDANCE if self.transformer.config.guidance_embeds else None
        return self.call(z, t, context, grid, prompt, edit, guided)


class QwenEdit(Backbone):
    """Qwen-Image-Edit with the empty prompt, without its language model's look at the picture.

    Args:
        transformer: Frozen.
        vae: Frozen.
        prompt: The language model's embedding of the empty prompt. Shape: (T, 3584).
    """

    prompt: Tensor

    def __init__(
        self,
        transformer: QwenImageTransformer2DModel,
        vae: AutoencoderKLQwenImage,
        prompt: Tensor,
    ) -> None:
        super().__init__(transformer)
        self.vae = vae
        self.requires_grad_(False).eval()
        self.factor = 2 * 2 ** len(vae.config.temperal_downsample)
        self.register_buffer("prompt", prompt)

    def _statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        config = self.vae.config
        mean, std = (like.new_tensor(x) for x in (config.latents_mean, config.latents_std))
        return mean.view(1, -1, 1, 1), std.view(1, -1, 1, 1)

    @torch.no_grad()
    def encode(self, image: Tensor) -> Tensor:
        """Shape: (B, 3, H, W) to (B, N, 64)."""
        video = (2 * image - 1)[:, :, None].to(self.vae.dtype)  # of one frame
        mode = self.vae.encode(video).latent_dist.mode()[:, :, 0].float()
        mean, std = self._statistics(mode)
        return _pack((mode - mean) / std)

    def decode(self, tokens: Tensor, grid: Grid, longest: int | None = None) -> Tensor:
        """Shape: (B, N, 64) to (B, 3, H, W)."""
        latents = _unpack(tokens, grid, longest, self.factor // 2)
        mean, std = self._statistics(latents)
        video = (latents * std + mean)[:, :, None].to(self.vae.dtype)
        image: Tensor = self.vae.decode(video).sample[:, :, 0]
        return (image.float() + 1) / 2

    def velocity(
        self,
        z: Tensor,
        t: Tensor,
        context: Tensor,
        grid: Grid,
        edit: Edit | None = None,
        instruction: Tensor | None = None,
    ) -> Tensor:
        """See :class:`Backbone`."""
        dtype = self.transformer.proj_out.weight.dtype
        with torch.autocast(z.device.type, enabled=False):
            out: Tensor = self.transformer(
                hidden_states=torch.cat([z, context], dim=1).to(dtype),
                encoder_hidden_states=self.prompt.expand(len(z), -1, -1).to(dtype),
                timestep=t,
                img_shapes=[[(1, *grid), (1, *grid)]] * len(z),
                attention_kwargs={"edit": edit, "targets": z.shape[1]},
                return_dict=False,
            )[0]
        return out[:, : z.shape[1]].float()


def build(
    name: str,
    base: str | None,
    revision: str | None,
    sizes: Mapping[str, Mapping[str, Any]],
    fetch: bool,
    fetch_prompt: bool,
) -> FluxKontext | QwenEdit:
    """A real editor from the hub or a folder, or a random one of other sizes.

    Args:
        name: "flux-kontext" or "qwen-edit".
        base: Hub id or folder; ``None`` for the published one.
        revision: Of it.
        sizes: By part ("transformer", "vae"), entries that replace the published config's: random
            smaller parts.
        fetch: Whether to fetch the weights of the parts that ``sizes`` does not name.
        fetch_prompt: Whether to compute the empty prompt's embedding with the text encoders; else
            it is zero, or follows from a checkpoint.

    Raises:
        ZooError: If a part is unknown or cannot be fetched.
    """
    for part in sizes:
        if part not in PARTS:
            raise ZooError(f"base_sizes names '{part}': expected {', '.join(PARTS)}.")
    source = base or IDS[name]
    flux = name == "flux-kontext"
    classes = (
        (FluxTransformer2DModel, AutoencoderKL)
        if flux
        else (QwenImageTransformer2DModel, AutoencoderKLQwenImage)
    )
    published = (FLUX_CONFIG, FLUX_VAE) if flux else ({}, {})
    made = []
    for part, cls, config in zip(PARTS, classes, published, strict=True):
        if fetch and part not in sizes:
            made.append(_fetch(cls, name, source, revision, part))
            continue
        entries = {**config, **sizes.get(part, {})}
        made.append(cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in entries.items()}))
    transformer, vae = made
    width = int(transformer.config.joint_attention_dim)
    if flux:
        prompt = torch.zeros(FLUX_PROMPT[0], width)
        pooled = torch.zeros(int(transformer.config.pooled_projection_dim))
        if fetch_prompt:
            prompt, pooled = _flux_prompt(source, revision)
        return FluxKontext(transformer, vae, prompt, pooled)
    prompt = torch.zeros(QWEN_PROMPT, width)
    if fetch_prompt:
        prompt = _qwen_prompt(source, revision)
    return QwenEdit(transformer, vae, prompt)


def _fetch(cls: Any, name: str, source: str, revision: str | None, part: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the hub's client, about its own defaults
            return cls.from_pretrained(
                source, subfolder=part, revision=revision, torch_dtype=torch.bfloat16
            )
    except (OSError, ValueError) as error:
        raise _unavailable(name, source, part, error) from error


def _unavailable(name: str, source: str, part: str, error: Exception) -> ZooError:
    reason = " ".join(str(error).split())[:160]
    return ZooError(
        f"The {part} of {source} cannot be fetched (a gated model needs its licence accepted on "
        f"the hub and 'hf auth login'; {ALTERNATIVE[name]}): {reason}"
    )


@torch.no_grad()
def _flux_prompt(source: str, revision: str | None) -> tuple[Tensor, Tensor]:
    """Embeds the empty prompt once; the text encoders are dropped again."""
    from diffusers import FluxKontextPipeline

    try:
        pipeline = FluxKontextPipeline.from_pretrained(
            source, revision=revision, transformer=None, vae=None, torch_dtype=torch.bfloat16
        )
    except (OSError, ValueError) as error:
        raise _unavailable("flux-kontext", source, "text encoder", error) from error
    prompt, pooled, _ = pipeline.encode_prompt(prompt="", prompt_2=None)
    return prompt[0].float(), pooled[0].float()


@torch.no_grad()
def _qwen_prompt(source: str, revision: str | None) -> Tensor:
    """The same, by the text-only pipeline: the editing one would need a picture."""
    from diffusers import QwenImagePipeline

    try:
        pipeline = QwenImagePipeline.from_pretrained(
            source, revision=revision, transformer=None, vae=None, torch_dtype=torch.bfloat16
        )
    except (OSError, ValueError) as error:
        raise _unavailable("qwen-edit", source, "text encoder", error) from error
    prompt, _ = pipeline.encode_prompt(prompt="")
    found: Tensor = prompt[0, :QWEN_PROMPT].float()
    return F.pad(found, (0, 0, 0, QWEN_PROMPT - len(found)))


def _pack(latents: Tensor) -> Tensor:
    """2x2 cells to a token. Shape: (B, c, h, w) to (B, h w / 4, 4 c)."""
    return F.pixel_unshuffle(latents, 2).flatten(2).transpose(1, 2)


def _unpack(tokens: Tensor, grid: Grid, longest: int | None, factor: int) -> Tensor:
    latents = F.pixel_shuffle(tokens.transpose(1, 2).reshape(len(tokens), -1, *grid), 2)
    side = max(latents.shape[-2:]) * factor
    if longest is None or side <= longest:
        return latents
    size = [max(1, round(s * longest / side)) for s in latents.shape[-2:]]
    return F.interpolate(latents, size, mode="bilinear", antialias=True)
