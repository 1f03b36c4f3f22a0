"""What needs no training, against PIL, OpenCV and loops."""

import math

import numpy as np
import pytest
import torch

from zoo.degbins.classical import (
    MIN_EXTENT,
    box_mean,
    depth_range,
    fill_unknown,
    guided_filter,
)


def test_unknown_pixels_take_the_nearest_known_depth_of_their_own_image():
    rng = np.random.default_rng(0)
    depth = rng.random((3, 1, 7, 9)).astype(np.float32) + 1
    depth[rng.random(depth.shape) < 0.6] = 0
    depth[1, 0, 2] = math.nan
    depth[2] = 0
    depth[2, 0, 6, 8] = 5.0  # far from most of its image, near in the stack
    filled = fill_unknown(torch.from_numpy(depth)).numpy()
    for image, result in zip(depth[:, 0], filled[:, 0], strict=True):
        ys, xs = np.nonzero(image > 0)
        for y in range(7):
            for x in range(9):
                distance = (ys - y) ** 2 + (xs - x) ** 2
                nearest = image[ys, xs][distance == distance.min()]
                assert result[y, x] in nearest


def test_nothing_to_fill_and_nothing_to_fill_from():
    depth = torch.rand(2, 1, 4, 5) + 1
    assert fill_unknown(depth) is depth
    depth[1] = math.nan
    filled = fill_unknown(depth)
    assert torch.equal(filled[0], depth[0])
    assert filled[1].eq(0).all()


def test_range_is_that_of_the_known_depths():
    depth = torch.tensor([[2.0, 0.0, 5.0], [3.0, 3.05, math.nan], [0.0, 0.0, 0.0]])[:, None, None]
    low, extent = depth_range(depth)
    assert low.shape == extent.shape == (3, 1, 1, 1)
    torch.testing.assert_close(low.flatten(), torch.tensor([2.0, 3.0, 0.0]))
    torch.testing.assert_close(extent.flatten(), torch.tensor([3.0, MIN_EXTENT, MIN_EXTENT]))


def test_box_mean_at_the_border_and_inside():
    image = torch.rand(1, 2, 9, 8)
    result = box_mean(image, 2)
    torch.testing.assert_close(result[0, :, 4, 4], image[0, :, 2:7, 2:7].mean(dim=(1, 2)))
    torch.testing.assert_close(result[0, :, 0, 7], image[0, :, :3, 5:].mean(dim=(1, 2)))


@pytest.mark.parametrize("channels", [1, 3])
def test_guided_filter_is_that_of_opencv(channels):
    cv2 = pytest.importorskip("cv2")
    ximgproc = pytest.importorskip("cv2.ximgproc")
    rng = np.random.default_rng(0)
    guide = cv2.GaussianBlur(rng.random((80, 90, 3), dtype=np.float32), (0, 0), 2)[..., :channels]
    depth = cv2.GaussianBlur(rng.random((80, 90), dtype=np.float32), (0, 0), 4)
    # On colours in 0..1 OpenCV takes small determinants for zero, hence the 8-bit range.
    expected = ximgproc.guidedFilter(np.ascontiguousarray(255 * guide), depth, 8, 1e-4 * 255**2)
    tensor = torch.from_numpy(np.ascontiguousarray(guide)).permute(2, 0, 1)[None]
    result = guided_filter(tensor, torch.from_numpy(depth)[None, None])[0, 0].numpy()
    np.testing.assert_allclose(result[16:-16, 16:-16], expected[16:-16, 16:-16], atol=1e-4)


def test_guided_filter_keeps_what_is_linear_in_the_guide():
    guide = torch.rand(2, 3, 40, 40)
    depth = 2 + (guide * torch.tensor([0.5, -0.25, 1.0]).view(1, 3, 1, 1)).sum(dim=1, keepdim=True)
    torch.testing.assert_close(guided_filter(guide, depth, eps=1e-7), depth, atol=1e-3, rtol=0)
    flat = torch.full_like(depth, 3.0)
    torch.testing.assert_close(guided_filter(guide, flat), flat)
