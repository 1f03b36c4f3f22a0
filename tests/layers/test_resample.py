"""Bicubic resampling against PIL."""

import numpy as np
import pytest
import torch
from PIL import Image

from zoo.layers.resample import bicubic


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ((15, 20), (120, 160)),
        ((7, 9), (31, 40)),
        ((1, 3), (8, 24)),
        ((5, 5), (5, 5)),
        ((48, 64), (6, 8)),
    ],
)
def test_bicubic_is_that_of_pil(low, high):
    image = np.random.default_rng(0).random(low, dtype=np.float32)
    expected = np.asarray(Image.fromarray(image).resize(high[::-1], Image.Resampling.BICUBIC))
    result = bicubic(torch.from_numpy(image)[None, None], high)[0, 0]
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-5)


def test_bicubic_keeps_a_plane_inside():
    row = torch.arange(12.0).expand(1, 1, 10, 12)
    result = bicubic(row, (40, 48))[0, 0]
    torch.testing.assert_close(
        result[:, 8:-8], ((torch.arange(48) + 0.5) / 4 - 0.5)[8:-8].expand(40, -1)
    )


def test_bicubic_is_exact_in_mixed_precision():
    image = torch.rand(1, 1, 6, 7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = bicubic(image, (24, 28))
    assert torch.equal(mixed, bicubic(image, (24, 28)))
