"""Modality dropout, and outliers to expose the rest effect to, made from the training images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from zoo.face_files import MODALITIES

PATCH = 8  # pixels, side of the patches that a permutation moves
REPLACED = 0.6  # chance of each sensor


def drop_modalities(mask: Tensor, rates: Sequence[float]) -> Tensor:
    """Takes sensors away by chance, but never the last of a sample.

    Args:
        mask: Which sensors are there, bool. Shape: (B, 3).
        rates: Chance of each sensor.
    """
    dropped = torch.rand(mask.shape, device=mask.device) < mask.new_tensor(rates, dtype=torch.float)
    left = mask & ~dropped
    return torch.where(left.any(dim=1, keepdim=True), left, mask)


def make_outliers(
    images: Mapping[str, Tensor], mask: Tensor, count: int
) -> tuple[dict[str, Tensor], Tensor]:
    """Copies of samples with sensors that show no face.

    Each sensor is replaced with probability 0.6, and one of those that are there at least: by
    uniform noise, a constant, or a permutation of its own 8 x 8 patches.

    Args:
        images: By modality. Shape of each: (B, C, H, W).
        mask: Which sensors are there. Shape: (B, 3).
        count: N, of the copies.

    Returns:
        By modality, shape of each (N, C, H, W); and their mask, shape (N, 3).
    """
    device = mask.device
    chosen = torch.randint(len(mask), (count,), device=device)
    there = mask[chosen]
    replace = (torch.rand(count, len(MODALITIES), device=device) < REPLACED) & there
    forced = torch.multinomial(there.float(), 1)[:, 0]
    replace[torch.arange(count, device=device), forced] |= ~replace.any(dim=1)
    found = {}
    for number, modality in enumerate(MODALITIES):
        image = images[modality][chosen]
        noise = torch.rand_like(image)
        constant = torch.rand(count, 1, 1, 1, device=device).expand_as(image)
        variants = torch.stack([noise, constant, permute_patches(image)])
        kind = torch.randint(3, (count,), device=device)
        odd = variants[kind, torch.arange(count, device=device)]
        found[modality] = torch.where(replace[:, number].view(-1, 1, 1, 1), odd, image)
    return found, there


def permute_patches(images: Tensor) -> Tensor:
    """Shuffles the patches of each image; what is beyond a multiple of 8 stays. (B, C, H, W)."""
    batch, channels, height, width = images.shape
    rows, columns = height // PATCH, width // PATCH
    inner = images[:, :, : rows * PATCH, : columns * PATCH]
    tiles = inner.reshape(batch, channels, rows, PATCH, columns, PATCH)
    tiles = tiles.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)  # (B, rows columns, C 8 8)
    order = torch.rand(batch, rows * columns, device=images.device).argsort(dim=1)
    tiles = tiles.gather(1, order[..., None].expand_as(tiles))
    tiles = tiles.view(batch, rows, columns, channels, PATCH, PATCH).permute(0, 3, 1, 4, 2, 5)
    result = images.clone()
    result[:, :, : rows * PATCH, : columns * PATCH] = tiles.reshape(inner.shape)
    return result
