"""The frozen editor: FLUX Kontext, Qwen-Image-Edit, or a small Flux of our own, behind one face."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLQwenImage,
    FluxTransformer2DModel,
    QwenImageTransformer2DModel,
)
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.delta_adapter.adapter import Edit
from zoo.delta_adapter.attention import install
from zoo.errors import ZooError

Grid: TypeAlias = tuple[int, int]  # rows and columns of tokens

TINY = "tiny-flux"
IDS = {"flux-kontext": "black-forest-labs/FLUX.1-Kontext-dev", "qwen-edit": "Qwen/Qwen-Image-Edit"}
BACKBONES = (TINY, *IDS)
PARTS = ("transformer", "vae")
ALTERNATIVE = {
    "flux-kontext": "backbone='qwen-edit' (Apache-2.0) needs no licence to be accepted",
    "qwen-edit": "backbone='flux-kontext' is another choice, gated and non-commercial",
}
TINY_CONFIG: Mapping[str, Any] = {
    "patch_size": 1,
    "in_channels": 48,
    "num_layers": 2,
    "num_single_layers": 2,
    "attention_head_dim": 32,
    "num_attention_heads": 4,
    "joint_attention_dim": 64,
    "pooled_projection_dim": 64,
    "axes_dims_rope": (4, 14, 14),
    "guidance_embeds": False,
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
PATCH = 4  # pixels to a token of the tiny editor
SOONEST = 0.25  # t at which the tiny editor's division by t ends
PREVIEW = 256  # pixels that the consistency loss decodes at


class Backbone(nn.Module):
    """A diffusion transformer that edits a context picture.

    Attributes:
        blocks: Number of blocks, each with an :class:`~zoo.delta_adapter.attention.EditProcessor`.
        heads: Of attention.
        head_dim: d, of each.
        factor: Pixels to a token, along each axis; sides are multiples of it.
    """

    factor: int

    def __init__(self, transformer: Any) -> None:
        super().__init__()
        self.transformer = transformer
        self.blocks = install(transformer)
        self.heads = int(transformer.config.num_attention_heads)
        self.head_dim = int(transformer.config.attention_head_dim)

    def grid(self, image: Tensor) -> Grid:
        """Rows and columns of the tokens of (B, 3, H, W)."""
        height, width = image.shape[-2:]
        if height % self.factor or width % self.factor:
            raise ZooError(
                f"The editor got {width}x{height} pixels: both must be multiples of {self.factor}."
            )
        return height // self.factor, width // self.factor

    @abstractmethod
    def encode(self, image: Tensor) -> Tensor:
        """Pictures in 0..1 to tokens. Shape: (B, 3, H, W) to (B, N, C)."""

    @abstractmethod
    def decode(self, tokens: Tensor, grid: Grid, longest: int | None = None) -> Tensor:
        """The inverse, with gradient, not clipped; reduced to ``longest`` pixels if larger."""

    @abstractmethod
    def velocity(
        self,
        z: Tensor,
        t: Tensor,
        context: Tensor,
        grid: Grid,
        edit: Edit | None = None,
        instruction: Tensor | None = None,
    ) -> Tensor:
        """v_theta(z_t, t, x, E).

        Args:
            z: Noisy tokens. Shape: (B, N, C).
            t: In 0..1, 1 is noise. Shape: (B,).
            context: Tokens of the source or query. Shape: (B, N, C).
            grid: Of both.
            edit: ``None`` for the editor as it is.
            instruction: Of the tiny editor: number of the edit, 0 for none, in place of a prompt.
                Shape: (B,), long.

        Returns:
            float32. Shape: (B, N, C).
        """


class _Flux(Backbone):
    """What both Flux editors share: position ids, and the order of tokens."""

    prompt: Tensor
    pooled: Tensor

    def _call(
        self,
        z: Tensor,
        t: Tensor,
        context: Tensor,
        grid: Grid,
        prompt: Tensor,
        edit: Edit | None,
        guidance: float | None = None,
    ) -> Tensor:
        weights = self.transformer.proj_out.weight
        count = z.shape[1]
        rows = torch.arange(grid[0], device=z.device).repeat_interleave(grid[1])
        columns = torch.arange(grid[1], device=z.device).repeat(grid[0])
        ids = torch.stack([torch.zeros_like(rows), rows, columns], dim=1)
        beside = ids + ids.new_tensor([1, 0, 0])  # the context: first id 1, else it is ignored
        more = None if guidance is None else torch.full_like(t, guidance)
        out: Tensor = self.transformer(
            hidden_states=torch.cat([z, context], dim=1).to(weights.dtype),
            encoder_hidden_states=prompt.to(weights.dtype),
            pooled_projections=self.pooled.expand(len(z), -1).to(weights.dtype),
            timestep=t,  # in 0..1: the model multiplies by 1000 itself
            img_ids=torch.cat([ids, beside]).to(weights.dtype),
            txt_ids=torch.zeros(prompt.shape[1], 3, device=z.device, dtype=weights.dtype),
            guidance=more,
            joint_attention_kwargs={"edit": edit, "targets": count},
            return_dict=False,
        )[0]
        return out[:, :count].float()


class TinyFlux(_Flux):
    """A Flux of 1.8 M parameters on blocks of 4x4 pixels, which learns to edit by instruction.

    Its output f is what the edit adds to the context: z_1 = x + f, so v = (z_t - x - f) / t. A
    network that starts at "change nothing" has the edit to learn, not the copying of 48 channels;
    the division ends at t = 0.25, below which small errors of f would be large ones of v.

    Args:
        instructions: Number of instructions, 0 ("leave it as it is") among them.
    """

    factor = PATCH

    def __init__(self, instructions: int) -> None:
        super().__init__(FluxTransformer2DModel(**TINY_CONFIG))
        nn.init.zeros_(self.transformer.proj_out.weight)
        nn.init.zeros_(self.transformer.proj_out.bias)
        self.instructions = nn.Embedding(instructions, int(TINY_CONFIG["joint_attention_dim"]))
        self.register_buffer(
            "pooled", torch.zeros(1, int(TINY_CONFIG["pooled_projection_dim"])), persistent=False
        )

    def encode(self, image: Tensor) -> Tensor:
        """Shape: (B, 3, H, W) to (B, H W / 16, 48), in -1..1."""
        return F.pixel_unshuffle(2 * image - 1, PATCH).flatten(2).transpose(1, 2)

    def decode(self, tokens: Tensor, grid: Grid, longest: int | None = None) -> Tensor:
        """Shape: (B, N, 48) to (B, 3, H, W)."""
        cells = tokens.transpose(1, 2).unflatten(2, grid)
        return (F.pixel_shuffle(cells, PATCH) + 1) / 2

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
        if instruction is None:
            instruction = torch.zeros(len(z), dtype=torch.long, device=z.device)
        prompt = self.instructions(instruction)[:, None]
        added = self._call(z, t, context, grid, prompt, edit)
        return (z - context - added) / t.clamp_min(SOONEST).view(-1, 1, 1)


class FluxKontext(_Flux):
    """FLUX.1 Kontext with the empty prompt.

    Args:
        transformer: Frozen.
        vae: Frozen; pictures are packed by 2x2 cells of its latents.
        prompt: T5's embedding of the empty prompt. Shape: (T, 4096).
        pooled: CLIP's. Shape: (768,).
    """

    def __init__(
        self, transformer: FluxTransformer2DModel, vae: AutoencoderKL, prompt: Tensor, pooled: Tensor
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
        return self._call(z, t, context, grid, prompt, edit, guided)


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
    latents = F.pixel_shuffle(tokens.transpose(1, 2).unflatten(2, grid), 2)
    side = max(latents.shape[-2:]) * factor
    if longest is None or side <= longest:
        return latents
    size = [max(1, round(s * longest / side)) for s in latents.shape[-2:]]
    return F.interpolate(latents, size, mode="bilinear", antialias=True)
