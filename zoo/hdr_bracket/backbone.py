"""Builds the generator: the tiny one from nothing, or Stable Video Diffusion's from the hub."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from diffusers import AutoencoderKLTemporalDecoder, UNetSpatioTemporalConditionModel
from torch import nn

from zoo.errors import ZooError, missing_extra
from zoo.hdr_bracket.codecs import ConvEmbedder, DifferenceCodec, ImageEncoder, LatentCodec
from zoo.hdr_bracket.generator import BracketGenerator

# What a part is called on the hub. A config may replace any of a part's entries, which makes a
# smaller network with weights of its own.
PARTS = ("unet", "vae", "image_encoder")
SVD_VAE: Mapping[str, Any] = {
    "block_out_channels": (128, 256, 512, 512),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "layers_per_block": 2,
    "latent_channels": 4,
    "sample_size": 768,
    "scaling_factor": 0.18215,
    "force_upcast": True,
}
SVD_CLIP: Mapping[str, Any] = {
    "hidden_act": "gelu",
    "hidden_size": 1280,
    "intermediate_size": 5120,
    "num_attention_heads": 16,
    "num_hidden_layers": 32,
    "patch_size": 14,
    "projection_dim": 1024,
    "image_size": 224,
}
SVD_UNET: Mapping[str, Any] = {"num_attention_heads": (5, 10, 20, 20), "sample_size": 96}

TEMPORAL = ("temporal_res_block", "temporal_transformer_blocks", "time_pos_embed", "time_mixer")
ATTENTION = ("attn1", "attn2")
# Of the tiny network's training, by task: deviation of the difference between a true frame and the
# input itself; mean of ln sigma, high as its sampler takes few steps from high noise; constant of
# the pseudo-Huber loss. The last two are by validation.
SPREADS = {"hdr": 0.35, "all_in_focus": 0.04}
LOG_MEANS = {"hdr": 3.0, "all_in_focus": 2.0}
HUBER = {"hdr": 0.5, "all_in_focus": None}
LORA_TARGETS = ("to_q", "to_k", "to_v", "to_out.0")


def build_tiny(
    task: str,
    channels: Sequence[int],
    heads: Sequence[int],
    evs: Sequence[float] | None,
    step: float,
    tile: int,
) -> BracketGenerator:
    """A generator of about a million random weights.

    Args:
        task: Of the method.
        channels: Of the two levels of the network, multiples of 32.
        heads: Of attention at each level.
        evs: Exposures of condition frames that are the input re-exposed; ``None`` if they are the
            input itself.
        step: Mean distance of the frames' exposures in stops.
        tile: Side in pixels above which the network sees tiles.
    """
    if len(channels) != 2 or any(c % 32 or c < 32 for c in channels):
        raise ZooError(f"channels={list(channels)} must be two multiples of 32.")
    codec = DifferenceCodec(evs, SPREADS[task])
    unet = UNetSpatioTemporalConditionModel(
        in_channels=codec.channels + codec.condition_channels,
        out_channels=codec.channels,
        block_out_channels=tuple(channels),
        layers_per_block=1,
        num_attention_heads=tuple(heads),
        cross_attention_dim=32,
        addition_time_embed_dim=16,
        projection_class_embeddings_input_dim=48,
        down_block_types=("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
        up_block_types=("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
    )
    # F = 0 at first, so that every sample begins as the condition itself.
    nn.init.zeros_(unet.conv_out.weight)
    nn.init.zeros_(unet.conv_out.bias)
    embedder = ConvEmbedder(32)
    tile //= codec.factor
    return BracketGenerator(unet, codec, embedder, step, tile, LOG_MEANS[task], HUBER[task])


def build_svd(
    hub_id: str,
    revision: str | None,
    sizes: Mapping[str, Mapping[str, Any]],
    fetch: Mapping[str, bool],
    step: float,
    tile: int,
) -> BracketGenerator:
    """Stable Video Diffusion's network, autoencoder and image encoder.

    Args:
        hub_id: Of the image-to-video model on the hub, or a folder.
        revision: Branch, tag or commit.
        sizes: By part, entries that replace the published config's: random smaller parts.
        fetch: By part, whether to fetch its weights; else they are random, or follow.
        step: Mean distance of the frames' exposures in stops.
        tile: Side in pixels above which the network sees tiles.

    Raises:
        ZooError: If a part is unknown, cannot be fetched, or transformers is missing.
    """
    for name in sizes:
        if name not in PARTS:
            raise ZooError(f"backbone_sizes names '{name}': expected {', '.join(PARTS)}.")
    try:
        from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection
    except ImportError as error:
        raise missing_extra("transformers", "video") from error

    def part(name: str, cls: Any, published: Mapping[str, Any]) -> Any:
        if fetch[name] and name not in sizes:
            return _fetch(cls, hub_id, revision, name)
        config = {**published, **sizes.get(name, {})}
        with warnings.catch_warnings():  # transformers' own, about its own defaults
            warnings.simplefilter("ignore")
            if name == "image_encoder":
                return cls(CLIPVisionConfig(**config))
            return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in config.items()})

    unet = part("unet", UNetSpatioTemporalConditionModel, SVD_UNET)
    vae = part("vae", AutoencoderKLTemporalDecoder, SVD_VAE)
    clip = part("image_encoder", CLIPVisionModelWithProjection, SVD_CLIP)
    codec = LatentCodec(vae)
    return BracketGenerator(unet, codec, ImageEncoder(clip), step, tile // codec.factor)


def _fetch(cls: Any, hub_id: str, revision: str | None, part: str) -> Any:
    try:
        return cls.from_pretrained(hub_id, subfolder=part, revision=revision)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ZooError(
            f"The {part} of {hub_id} cannot be fetched (a gated model needs its licence accepted "
            f"and 'hf auth login'): {reason}"
        ) from error


def add_lora(unet: UNetSpatioTemporalConditionModel, rank: int) -> None:
    """Adds low-rank updates to all projections of attention, spatial and temporal.

    Args:
        unet: Changed in place; its own weights are frozen.
        rank: r; the updates' scale is 1.
    """
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(r=rank, lora_alpha=rank, target_modules=list(LORA_TARGETS))
    inject_adapter_in_model(config, unet)


def trainable_modules(unet: nn.Module, train: str) -> list[str]:
    """Names within the network of the submodules that train.

    Args:
        unet: The network, with low-rank updates if ``train`` is "lora".
        train: "full", "temporal" (temporal layers and all attention) or "lora".
    """
    if train == "full":
        return [""]
    if train == "lora":
        wanted: Sequence[str] = ("lora_A", "lora_B")
    else:
        wanted = (*TEMPORAL, *ATTENTION)
    found = [name for name, _ in unet.named_modules() if name.rpartition(".")[2] in wanted]
    return [name for name in found if not any(name.startswith(f"{other}.") for other in found)]


def frozen_leaves(unet: nn.Module, trained: Sequence[str]) -> list[str]:
    """Names of the modules that hold weights which never train."""
    inside = tuple(f"{name}." for name in trained)
    return [
        name
        for name, module in unet.named_modules()
        if name
        and f"{name}." not in inside
        and not f"{name}.".startswith(inside)
        and next(module.parameters(recurse=False), None) is not None
    ]
