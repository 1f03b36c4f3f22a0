"""Between frames and the latents that diffusion works on, and embeddings of the input.

Embedded scale: no autoencoder, but the difference of a frame and its condition in blocks of 4x4
pixels. It is exact both ways. Diffusion of the difference starts at the re-exposed input, where a
network of 48 channels a block squeezed through 32 would first have to learn to copy. Where the
input has lost light the difference is ten times that elsewhere, so each value has a scale of its
own: latents of about unit deviation are what the scalings of EDM are made for.

The condition says more than the re-exposed frames: which of their values the input has lost, and
what is just below its white, enlarged. Without these the network lifted highlights by the mean of
its training, on held-out panoramas uncorrelated with the truth.

Real scale: the frozen autoencoder and image encoder of Stable Video Diffusion.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from diffusers import AutoencoderKLTemporalDecoder
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.display import encode
from zoo.hdr_bracket.bracket import gains, known
from zoo.layers.tiling import tiled

PATCH = 4
# Deviation of the difference between a true frame and the re-exposed input, on the training crops:
# where the frame is known but for noise, in highlights that the input clipped, in its shadows.
KNOWN_SPREAD, CLIPPED_SPREAD, DARK_SPREAD = 0.015, 0.12, 0.07
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
VAE_TILE, VAE_OVERLAP = 1024, 128  # pixels


class Codec(nn.Module):
    """What a generator asks of its latents.

    Attributes:
        channels: C.
        condition_channels: K, of the condition.
        factor: Pixels to a cell, along each axis.
        multiple: Height and width must be multiples of it, in pixels.
    """

    channels: int
    condition_channels: int
    factor: int
    multiple: int

    @abstractmethod
    def encode(self, frames: Tensor, reference: Tensor) -> Tensor:
        """Frames to latents: (B, N, 3, H, W) twice to (B, N, C, h, w)."""

    @abstractmethod
    def decode(self, latents: Tensor, reference: Tensor) -> Tensor:
        """The inverse of :meth:`encode`."""

    @abstractmethod
    def condition(self, reference: Tensor) -> Tensor:
        """Condition frames to what the network sees of them: (B, N, K, h, w)."""


class DifferenceCodec(Codec):
    """Blocks of 4x4 pixels of the difference between a frame and its condition frame.

    Args:
        evs: Exposures of condition frames that are the input re-exposed; ``None`` if they are the
            input itself.
        spread: Deviation of the difference then.
    """

    channels = 3 * PATCH**2
    factor = PATCH
    multiple = 2 * PATCH  # the network halves its map once

    def __init__(self, evs: Sequence[float] | None = None, spread: float = 0.04) -> None:
        super().__init__()
        self.evs = None if evs is None else list(evs)
        self.uniform = spread
        self.condition_channels = self.channels * (1 if evs is None else 3)

    def encode(self, frames: Tensor, reference: Tensor) -> Tensor:
        """Shape: (B, N, 3, H, W) twice to (B, N, 48, H/4, W/4)."""
        return _unshuffle((frames - reference) / self.spread(reference))

    def decode(self, latents: Tensor, reference: Tensor) -> Tensor:
        """Shape: (B, N, 48, h, w) and (B, N, 3, H, W) to (B, N, 3, H, W)."""
        return reference + self.spread(reference) * F.pixel_shuffle(latents, PATCH)

    def spread(self, reference: Tensor) -> Tensor | float:
        """What the difference is divided by: of the same shape, or a number."""
        if self.evs is None:
            return self.uniform
        unknown = self._unknown(reference)
        lost = {-1: CLIPPED_SPREAD, 0: KNOWN_SPREAD, 1: DARK_SPREAD}
        most = reference.new_tensor([lost[(e > 0) - (e < 0)] for e in self.evs]).view(-1, 1, 1, 1)
        return KNOWN_SPREAD + (most - KNOWN_SPREAD) * unknown

    def condition(self, reference: Tensor) -> Tensor:
        """The frames in -1..1 and, if they are re-exposed, what they lack.

        Then a frame is measured against the brightest that the input can make it: 1 is the clipped
        input at any exposure. It is followed by 1 where the input does not tell its value, and by
        the input's display values of 0.6 to 1, in -1..1: those of a lamp's glow or a sky's rim.

        Shape: (B, N, 3, H, W) to (B, N, K, H/4, W/4), K = 48, or 144.
        """
        if self.evs is None:
            return _unshuffle(2 * reference - 1)
        white = encode(gains(self.evs, reference))
        image = reference[:, self.evs.index(0), None].expand_as(reference)
        near_white = (5 * (image - 0.8)).clamp(-1, 1)
        parts = (2 * reference / white - 1, self._unknown(reference), near_white)
        return torch.cat([_unshuffle(part) for part in parts], dim=2)

    def _unknown(self, reference: Tensor) -> Tensor:
        assert self.evs is not None
        return 1 - known(reference[:, self.evs.index(0)], self.evs)


class LatentCodec(Codec):
    """The autoencoder of Stable Video Diffusion, frozen.

    Noisy latents carry its scaling factor, those of the condition do not: so was the network
    trained. Encoder and decoder see a few frames at a time, and above 1024 pixels tiles.

    Args:
        vae: The autoencoder.
        chunk: Frames decoded at once.
    """

    def __init__(self, vae: AutoencoderKLTemporalDecoder, chunk: int = 4) -> None:
        super().__init__()
        self.vae = vae.requires_grad_(False).eval()
        self.chunk = chunk
        self.channels = self.condition_channels = int(vae.config.latent_channels)
        self.factor = 2 ** (len(vae.config.block_out_channels) - 1)
        self.multiple = 8 * self.factor  # the network halves its map three times

    def train(self, mode: bool = True) -> LatentCodec:
        """Stays in eval mode."""
        return super().train(False)

    @torch.no_grad()
    def encode(self, frames: Tensor, reference: Tensor) -> Tensor:
        """Shape: (B, N, 3, H, W) to (B, N, 4, H/8, W/8)."""
        latents: Tensor = self._mode(frames) * self.vae.config.scaling_factor
        return latents

    @torch.no_grad()
    def condition(self, reference: Tensor) -> Tensor:
        """Shape: (B, N, 3, H, W) to (B, N, 4, H/8, W/8)."""
        return self._mode(reference)

    def _mode(self, frames: Tensor) -> Tensor:
        parts = torch.split(frames.flatten(0, 1), self.chunk)
        modes = [
            self.vae.encode(2 * part.to(self.vae.dtype) - 1).latent_dist.mode() for part in parts
        ]
        return torch.cat(modes).float().view(*frames.shape[:2], *modes[0].shape[1:])

    @torch.no_grad()
    def decode(self, latents: Tensor, reference: Tensor) -> Tensor:
        """Shape: (B, N, 4, h, w) to (B, N, 3, 8 h, 8 w)."""
        z = latents / self.vae.config.scaling_factor
        chunks = [
            self._decode_chunk(part) for video in z for part in torch.split(video, self.chunk)
        ]
        frames = torch.cat(chunks).float().view(*latents.shape[:2], *chunks[0].shape[1:])
        return (frames + 1) / 2

    def _decode_chunk(self, z: Tensor) -> Tensor:
        height, width = (s * self.factor for s in z.shape[-2:])
        z = z.to(self.vae.dtype)
        if max(height, width) <= VAE_TILE:
            decoded: Tensor = self.vae.decode(z, num_frames=len(z)).sample
            return decoded
        # A tile of the picture belongs to a tile of latents: both grids fall on whole cells.
        spread = z.repeat_interleave(self.factor, dim=-2).repeat_interleave(self.factor, dim=-1)

        def part(tile: Tensor) -> list[Tensor]:
            cells = tile[..., :: self.factor, :: self.factor]
            return [self.vae.decode(cells, num_frames=len(cells)).sample.float()]

        return tiled(part, [spread], VAE_TILE, VAE_OVERLAP)[0]


class ConvEmbedder(nn.Module):
    """A thumbnail's mean features, in the place of a pretrained image encoder.

    Args:
        width: E.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width // 2, 4, stride=4),
            nn.SiLU(),
            nn.Conv2d(width // 2, width, 4, stride=4),
            nn.SiLU(),
        )
        self.out = nn.Linear(width, width)

    def forward(self, image: Tensor) -> Tensor:
        """Shape: (B, 3, H, W) to (B, 1, E)."""
        small = F.interpolate(image, (64, 64), mode="bilinear", antialias=True)
        embedded: Tensor = self.out(self.layers(2 * small - 1).mean(dim=(2, 3)))
        return embedded[:, None]


class ImageEncoder(nn.Module):
    """CLIP's embedding of the input, frozen.

    Args:
        clip: A ``CLIPVisionModelWithProjection`` of transformers.
    """

    def __init__(self, clip: Any) -> None:
        super().__init__()
        self.clip = clip.requires_grad_(False).eval()
        self.side = int(clip.config.image_size)

    def train(self, mode: bool = True) -> ImageEncoder:
        """Stays in eval mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, image: Tensor) -> Tensor:
        """Shape: (B, 3, H, W) to (B, 1, E)."""
        size = (self.side, self.side)
        small = F.interpolate(image.float(), size, mode="bicubic", antialias=True).clamp(0, 1)
        mean, std = (image.new_tensor(v).view(3, 1, 1) for v in (CLIP_MEAN, CLIP_STD))
        embedded: Tensor = self.clip(((small - mean) / std).to(self.clip.dtype)).image_embeds
        return embedded.float()[:, None]


def _unshuffle(frames: Tensor) -> Tensor:
    return F.pixel_unshuffle(frames, PATCH)
