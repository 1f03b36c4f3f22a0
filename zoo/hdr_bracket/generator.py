"""The video diffusion model whose video is a bracket: one frame an exposure, or a focus distance.

The network is diffusers' ``UNetSpatioTemporalConditionModel``, that of Stable Video Diffusion: its
spatial layers see each frame, its temporal layers the same place in all frames, so that what a
dark frame shows in a highlight and what a bright one shows in a shadow come from one model. It
sees noisy latents of all frames beside latents of the condition, which is the input repeated, or
re-exposed to each frame's exposure.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from diffusers import UNetSpatioTemporalConditionModel
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.hdr_bracket import edm
from zoo.hdr_bracket.codecs import Codec
from zoo.layers.tiling import tiled

CLIPPED_WEIGHT = 6.0  # in the loss, of cells where the input is clipped; on validation 6 beat 2


@dataclass(frozen=True)
class Condition:
    """What the network is told about the input.

    Attributes:
        latents: Of the condition frames. Shape: (B, N, K, h, w).
        embedding: Of the input, for cross-attention. Shape: (B, 1, E).
        time_ids: Frames less one, ten times the stops between them, and noise added to the
            condition: the places of Stable Video Diffusion's frame rate, motion and noise. Shape:
            (B, 3).
    """

    latents: Tensor
    embedding: Tensor
    time_ids: Tensor

    def drop(self, kept: Tensor) -> Condition:
        """The same with condition and embedding zeroed where ``kept`` is 0. Shape: (B,)."""
        return Condition(
            self.latents * kept.view(-1, 1, 1, 1, 1),
            self.embedding * kept.view(-1, 1, 1),
            self.time_ids,
        )

    def part(self, latents: Tensor) -> Condition:
        """The same for a tile of the latents."""
        return Condition(latents, self.embedding, self.time_ids)


class BracketGenerator(nn.Module):
    """Denoises, trains on and samples brackets.

    Args:
        unet: Takes C + K channels, gives C.
        codec: Between frames and latents.
        embedder: From the input, (B, 3, H, W) in 0..1, to (B, 1, E).
        step: Mean distance of the frames' exposures in stops; 0 for focus.
        tile: Side in cells above which the network sees tiles.
        log_mean: Of the noise levels of training, see :func:`~zoo.hdr_bracket.edm.draw_sigmas`.
        huber: c of the pseudo-Huber loss sqrt(e^2 + c^2) - c of the network's error e, beyond which
            errors count by size, not by square; ``None`` for squares, EDM's own.
    """

    def __init__(
        self,
        unet: UNetSpatioTemporalConditionModel,
        codec: Codec,
        embedder: nn.Module,
        step: float,
        tile: int,
        log_mean: float = edm.LOG_MEAN,
        huber: float | None = None,
    ) -> None:
        super().__init__()
        self.unet = unet
        self.codec = codec
        self.embedder = embedder
        self.step = step
        self.tile = tile
        self.log_mean = log_mean
        self.huber = huber

    def condition(self, image: Tensor, reference: Tensor) -> Condition:
        """What the network is told.

        Args:
            image: The input, display-encoded. Shape: (B, 3, H, W).
            reference: The condition frames: the input, repeated or re-exposed. Shape:
                (B, N, 3, H, W).
        """
        ids = image.new_tensor([reference.shape[1] - 1, 10 * self.step, 0.0])
        return Condition(
            self.codec.condition(reference), self.embedder(image), ids.expand(len(image), 3)
        )

    def predict(self, z: Tensor, noise_level: Tensor, condition: Condition) -> Tensor:
        """F: one call of the network. Shape: (B, N, C, h, w) to the same."""
        x = torch.cat([z, condition.latents], dim=2)
        out: Tensor = self.unet(
            x, noise_level, condition.embedding, condition.time_ids, return_dict=False
        )[0]
        return out

    def denoise(
        self, z: Tensor, sigma: Tensor, condition: Condition, guidance: float = 1.0
    ) -> Tensor:
        """D(z; sigma), with the condition's effect strengthened if ``guidance`` exceeds 1.

        Args:
            z: Noisy latents. Shape: (B, N, C, h, w).
            sigma: Noise levels. Shape: (B,).
            condition: See :meth:`condition`.
            guidance: 1 for none, at half the cost.
        """
        c = edm.scalings(sigma)

        def network(latents: Tensor, seen: Tensor) -> list[Tensor]:
            told = condition.part(seen)
            out = self.predict(c.into * latents, c.noise, told)
            if guidance != 1.0:
                free = told.drop(torch.zeros(len(z), device=z.device))
                free_out = self.predict(c.into * latents, c.noise, free)
                out = free_out + guidance * (out - free_out)
            return [out.float()]

        # Spatial attention costs the square of the cells, so above a tile's side the network sees
        # tiles. Each step blends their estimates, so that all follow one trajectory and no seam
        # shows (MultiDiffusion, https://arxiv.org/abs/2302.08113).
        (f,) = tiled(network, [z, condition.latents], self.tile, self.tile // 4)
        return c.skip * z + c.out * f

    def loss(
        self, frames: Tensor, image: Tensor, reference: Tensor, lost: Tensor, drop: float
    ) -> Tensor:
        """The loss of EDM, heavier in cells where the input is clipped.

        Squares see lamps alone: how much a clipped pixel lacks has heavy tails, and a network of
        few steps then lifts a pale sky, which lacks a tenth of a stop, as if it were one. PSNR is a
        mean of logarithms over pictures, where that costs most. The pseudo-Huber loss keeps the
        balance (of diffusion: Y. Song and P. Dhariwal, https://arxiv.org/abs/2310.14189).

        Args:
            frames: True frames, display-encoded. Shape: (B, N, 3, H, W).
            image: The input. Shape: (B, 3, H, W).
            reference: The condition frames. Shape: (B, N, 3, H, W).
            lost: 1 where the input is clipped. Shape: (B, 1, H, W).
            drop: Chance that a sample is trained without condition, for guidance.
        """
        clean = self.codec.encode(frames, reference)
        condition = self.condition(image, reference)
        kept = (torch.rand(len(image), device=image.device) >= drop).to(clean.dtype)
        sigma = edm.draw_sigmas(len(clean), clean.device, self.log_mean)
        noise = torch.randn_like(clean)
        estimate = self.denoise(
            clean + sigma.view(-1, 1, 1, 1, 1) * noise, sigma, condition.drop(kept)
        )
        cells = F.adaptive_max_pool2d(lost, clean.shape[-2:])[:, None]  # (B, 1, 1, h, w)
        weight = 1 + (CLIPPED_WEIGHT - 1) * cells
        error = edm.loss_weight(sigma) * (estimate - clean).square()  # of F, squared
        if self.huber is not None:
            error = (error + self.huber**2).sqrt() - self.huber
        return (weight * error).mean()

    def sample(
        self,
        image: Tensor,
        reference: Tensor,
        noise: Tensor,
        steps: int,
        sigma_max: float,
        guidance: float = 1.0,
    ) -> Tensor:
        """Draws one bracket for each input.

        Args:
            image: The input; height and width multiples of the codec's. Shape: (B, 3, H, W).
            reference: The condition frames. Shape: (B, N, 3, H, W).
            noise: Standard normal, see :meth:`noise_shape`.
            steps: Of Euler's method; each is one call of the network, two with guidance.
            sigma_max: First noise level.
            guidance: See :meth:`denoise`.

        Returns:
            Display-encoded frames in 0..1. Shape: (B, N, 3, H, W).
        """
        condition = self.condition(image, reference)
        z = edm.euler(
            lambda z, sigma: self.denoise(z, sigma, condition, guidance),
            noise,
            edm.karras_sigmas(steps, sigma_max),
        )
        return self.codec.decode(z, reference).float().clamp(0, 1)

    def noise_shape(self, reference: Tensor) -> tuple[int, int, int, int]:
        """Of one sample's noise: (N, C, h, w)."""
        factor = self.codec.factor
        height, width = reference.shape[-2:]
        return reference.shape[1], self.codec.channels, height // factor, width // factor
