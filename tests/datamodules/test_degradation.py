import numpy as np
import pytest
import torch
from PIL import Image

from zoo.datamodules.guided_depth import degradation
from zoo.datamodules.guided_depth.degradation import generator

WHOLE = (slice(None), slice(None))


def steps(height: int, width: int, seed: int = 0) -> torch.Tensor:
    """Blocks of depth from 0.5 to 5 m: hard edges, where resampling kernels differ most."""
    blocks = 0.5 + 4.5 * torch.rand(height // 8 + 1, width // 8 + 1, generator=generator(seed))
    return blocks.repeat_interleave(8, 0).repeat_interleave(8, 1)[:height, :width].contiguous()


@pytest.mark.parametrize("scale", [4, 8, 16])
def test_bicubic_is_pils_down_and_up(scale):
    depth = steps(480, 640)
    small = Image.fromarray(depth.numpy()).resize((640 // scale, 480 // scale), Image.BICUBIC)
    large = small.resize((640, 480), Image.BICUBIC)
    down = degradation.bicubic_depth(depth, scale)
    np.testing.assert_allclose(down, np.asarray(small), atol=1e-5)
    np.testing.assert_allclose(degradation.bicubic(down, (480, 640)), np.asarray(large), atol=1e-5)


def test_an_undershoot_is_not_unknown():
    depth = torch.full((32, 32), 0.01)
    depth[:, 16:] = 10.0
    assert Image.fromarray(depth.numpy()).resize((4, 4), Image.BICUBIC).getextrema()[0] < 0
    assert degradation.bicubic_depth(depth, 8).min() > 0


def fill_slowly(depth: np.ndarray) -> np.ndarray:
    filled = depth.copy()
    for y, row in enumerate(depth):
        for x in np.flatnonzero(row == 0):
            left, right = row[:x][row[:x] > 0], row[x:][row[x:] > 0]
            filled[y, x] = max([*left[-1:], *right[:1]], default=0)
    return filled


def test_fill_takes_the_farther_neighbour_of_the_row():
    depth = steps(40, 56).numpy() * (np.random.default_rng(0).random((40, 56)) > 0.7)
    depth[:, :3] = 0  # nothing known on the left
    depth[:, -2:] = 0
    filled = degradation.fill_unknown(torch.from_numpy(depth))
    np.testing.assert_array_equal(filled, fill_slowly(depth))
    assert (filled > 0).all()


def test_fill_takes_the_column_where_a_row_is_unknown():
    depth = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [3.0, 4.0]])
    wanted = torch.tensor([[1.0, 1.0], [1.0, 1.0], [3.0, 4.0], [3.0, 4.0]])
    torch.testing.assert_close(degradation.fill_unknown(depth), wanted)


def test_fill_leaves_a_map_without_known_pixels():
    assert not degradation.fill_unknown(torch.zeros(4, 5)).any()


def test_window_of_the_blur_is_the_blur_of_the_window():
    depth = steps(96, 120)
    whole = degradation.blur_levels(depth, WHOLE)
    assert torch.equal(whole[0], depth)
    for window in ((slice(30, 62), slice(40, 72)), (slice(0, 32), slice(88, 120))):
        part = degradation.blur_levels(depth, window)
        torch.testing.assert_close(part, whole[:, window[0], window[1]])
    assert (whole[2] - depth).abs().max() > 0.5


def test_window_of_a_smooth_map():
    window = (slice(10, 42), slice(50, 82))
    whole = degradation.smooth_map((96, 120), WHOLE, generator(3))
    assert torch.equal(degradation.smooth_map((96, 120), window, generator(3)), whole[window])
    assert whole.min() >= 0
    assert whole.max() <= 1
    assert whole.max() - whole.min() > 0.5
    assert whole.diff(dim=0).abs().max() < 0.1


def test_training_crop_is_a_crop_of_the_degraded_scene():
    depth, rng = steps(96, 128), generator(0)
    blur, still = degradation.smooth_map((96, 128), WHOLE, rng), torch.zeros(96, 128)
    levels = degradation.blur_levels(depth, WHOLE)
    whole = degradation.spatially_varying(levels, blur, still, 8, rng)
    window = (slice(16, 80), slice(40, 104))
    crop = degradation.spatially_varying(
        levels[:, window[0], window[1]], blur[window], still[window], 8, rng
    )
    torch.testing.assert_close(crop, whole[2:10, 5:13])


@pytest.mark.parametrize(("blur", "level"), [(0.0, 0), (0.5, 1), (1.0, 2)])
def test_blur_map_chooses_the_level(blur, level):
    levels = degradation.blur_levels(steps(64, 64), WHOLE)
    flat = torch.full((64, 64), blur)
    lr = degradation.spatially_varying(levels, flat, torch.zeros(64, 64), 1, generator(0))
    torch.testing.assert_close(lr, levels[level])


@pytest.mark.parametrize("blur", [0.0, 0.2, 0.5, 0.7, 1.0])
def test_local_sigma_is_the_spread_of_a_point(blur):
    point = torch.zeros(101, 101)
    point[50, 50] = 1e9  # the floor of MIN_DEPTH must not count
    flat = torch.full((101, 101), blur)
    levels = degradation.blur_levels(point, WHOLE)
    spread = degradation.spatially_varying(levels, flat, 0 * flat, 1, generator(0)).double()
    variance = (spread * (torch.arange(101) - 50).double() ** 2).sum() / spread.sum()
    assert degradation.local_sigma(flat)[0, 0] == pytest.approx(float(variance.sqrt()), abs=0.02)


@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
def test_noise_is_at_most_one_percent(strength):
    flat = torch.full((512, 512), 2.0)
    levels = degradation.blur_levels(flat, WHOLE)
    noise = torch.full((512, 512), strength)
    lr = degradation.spatially_varying(levels, 0 * flat, noise, 8, generator(0))
    assert lr.shape == (64, 64)
    assert (lr / 2 - 1).std() == pytest.approx(0.01 * strength, rel=0.05)


def test_generators_differ_by_every_number_of_the_key():
    keys = [(0, 1), (1, 0), (0, 0), (1, 1), (2**31, 1)]
    draws = {float(torch.rand((), generator=generator(*key))) for key in keys}
    assert len(draws) == len(keys)
    again = torch.rand((), generator=generator(0, 1))
    assert torch.equal(again, torch.rand((), generator=generator(0, 1)))


def test_noisy_adds_seven_percent_of_the_full_scale():
    lr = torch.full((64, 64), 3.0)
    lr[0, 0], lr[0, 1], lr[5, 5] = 0.5, 6.0, 0  # a range that clips little, and a hole
    result = degradation.noisy(lr, 4, 5.0, generator(0))
    assert result[5, 5] == 0
    assert (result[8:] - 3).std() == pytest.approx(0.35, rel=0.05)
    assert result[result > 0].min() >= 0.5
    assert result.max() <= 6.0


def test_noisy_blurs_at_the_size_of_the_guide():
    lr = torch.ones(32, 32)
    lr[:, 16:] = 2.0
    still = degradation.noisy(lr, 4, 0.0, generator(0))
    # A step of one LR pixel, 4 px wide, becomes one of about sigma = 3.6 px.
    assert 0.05 < still[16, 15] - 1 < 0.4
    torch.testing.assert_close(still[:, :8], torch.ones(32, 8))
