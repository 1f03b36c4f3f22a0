"""Brackets, weights and fusion; diffusion against diffusers; metrics against known values."""

import numpy as np
import pytest
import torch
from diffusers import EulerDiscreteScheduler
from torchvision.transforms.functional import gaussian_blur

from zoo.display import decode, encode, tone_map
from zoo.errors import ZooError
from zoo.hdr_bracket import FusionUNet, debevec, edm, expose, merge
from zoo.hdr_bracket.bracket import (
    check_evs,
    contrast_prior,
    keep_input,
    perturb,
    triangle_prior,
    well_exposed,
)
from zoo.hdr_bracket.metrics import ClippedError, Log2MAE, ReexposurePSNR, align
from zoo.hdr_bracket.upsample import joint_bilateral_upsample
from zoo.layers.tiling import tiled
from zoo.metrics.pu21 import PEAK, PU21PSNR, pu21_encode

EVS = (-4.0, -2.0, 0.0, 2.0, 4.0)


def radiance(batch=2, side=12):
    generator = torch.Generator().manual_seed(0)
    return torch.exp2(8 * torch.rand(batch, 3, side, side, generator=generator) - 5)


@pytest.mark.parametrize("curve", ["srgb", "power2.2"])
def test_curves_are_inverse(curve):
    x = torch.linspace(0, 1, 101)
    assert torch.allclose(decode(encode(x, curve), curve), x, atol=1e-5)
    with pytest.raises(ZooError, match="expected 'srgb'"):
        encode(x, "rec2020")


def test_frames_are_the_exposures_of_the_definition():
    h = radiance(1)
    frames = expose(h, EVS)
    for i, e in enumerate(EVS):
        assert torch.allclose(frames[0, i], encode((h[0] * 2**e).clamp(0, 1)), atol=1e-6)


def test_any_weights_on_a_true_bracket_give_the_scene_where_no_frame_clips():
    h = 0.02 + 0.04 * torch.rand(1, 3, 8, 8)  # below 2^-4
    weights = torch.rand(1, 5, 8, 8).softmax(dim=1)
    assert torch.allclose(merge(expose(h, EVS), weights, EVS), h, atol=1e-4)
    assert torch.allclose(debevec(expose(h, EVS), EVS), h, atol=1e-4)


def test_fusion_is_convex():
    frames = torch.rand(2, 5, 3, 9, 10)
    fusion = FusionUNet(5, width=4)
    torch.nn.init.normal_(fusion.out.weight)
    weights = fusion(frames)
    assert weights.shape == (2, 5, 9, 10)
    assert torch.allclose(weights.sum(dim=1), torch.ones(2, 9, 10), atol=1e-6)
    gains = 2.0 ** torch.tensor(EVS).view(1, 5, 1, 1, 1)
    linear = decode(frames) / gains
    fused = merge(frames, weights, EVS)
    assert (fused <= linear.amax(dim=1) * 1.0001).all()
    assert (fused >= linear.amin(dim=1) * 0.9999).all()


def test_fusion_starts_at_classic_weights():
    frames = expose(radiance(), EVS)
    assert torch.allclose(FusionUNet(5)(frames), triangle_prior(frames).softmax(dim=1), atol=1e-6)
    contrast = FusionUNet(5, prior="contrast")(frames)
    assert torch.allclose(contrast, contrast_prior(frames).softmax(dim=1), atol=1e-6)


def test_contrast_finds_the_sharp_frame():
    torch.manual_seed(0)
    sharp = torch.rand(1, 3, 32, 32)
    blurred = gaussian_blur(sharp, [9, 9], [2.0, 2.0])
    left = torch.where(torch.arange(32) < 16, sharp, blurred)
    right = torch.where(torch.arange(32) < 16, blurred, sharp)
    weights = contrast_prior(torch.stack([left, right], dim=1)).softmax(dim=1)
    assert weights[:, 0, :, :13].min() > 0.99
    assert weights[:, 1, :, 19:].min() > 0.99
    flat = contrast_prior(torch.full((1, 3, 3, 8, 8), 0.3)).softmax(dim=1)
    torch.testing.assert_close(flat, torch.full((1, 3, 8, 8), 1 / 3))


def test_triangle_prior_by_hand():
    frames = torch.tensor([0.5, 0.25, 1.0]).view(1, 3, 1, 1, 1).expand(1, 3, 3, 1, 1)
    assert triangle_prior(frames).exp().flatten().tolist() == pytest.approx([1, 0.25, 1e-6])


def test_debevec_is_opencv_s():
    cv2 = pytest.importorskip("cv2")
    h = 0.3 * radiance(1)[:, :1].expand(-1, 3, -1, -1)  # grey: they weigh by the mean colour
    frames = (expose(h, EVS)[0] * 255).round().byte().permute(0, 2, 3, 1).numpy()
    response = decode(torch.arange(256) / 255).clamp_min(2.0**-16).numpy()
    response = np.repeat(response[:, None, None], 3, axis=2).astype(np.float32)
    times = np.float32([2.0**e for e in EVS])
    theirs = cv2.createMergeDebevec().process(list(frames), times, response)
    ours = debevec(torch.from_numpy(frames).permute(0, 3, 1, 2)[None] / 255, EVS)
    ratio = np.log2(ours[0].permute(1, 2, 0).numpy() / np.maximum(theirs, 1e-9))
    assert np.abs(np.median(ratio)) < 0.05
    assert np.quantile(np.abs(ratio), 0.8) < 0.1


def test_the_input_takes_its_place():
    image = torch.tensor([0.0, 0.5, 1.0]).view(1, 1, 1, 3).expand(1, 3, 1, 3)
    assert well_exposed(image).flatten().tolist() == [0, 1, 0]
    frames = torch.full((1, 5, 3, 1, 3), 0.3)
    kept = keep_input(frames, image, EVS, fidelity=0.5)
    assert torch.equal(kept[:, 2], image)
    exposed = expose(decode(image), EVS)
    assert torch.allclose(
        kept[0, 3, :, 0, 1], 0.5 * frames[0, 3, :, 0, 1] + 0.5 * exposed[0, 3, :, 0, 1]
    )
    assert torch.allclose(kept[0, 0, :, 0, 2], frames[0, 0, :, 0, 2])  # lost light stays generated
    assert torch.allclose(kept[0, 4, :, 0, 0], frames[0, 4, :, 0, 0])
    whole = keep_input(frames, image, EVS, fidelity=1.0)
    assert torch.allclose(whole[0, 4, :, 0, 2], exposed[0, 4, :, 0, 2])  # brighter, still clipped
    assert torch.allclose(whole[0, 0, :, 0, 0], exposed[0, 0, :, 0, 0])  # darker, still dark


def test_perturbed_frames_differ_and_others_have_eight_bits():
    frames = expose(radiance(4), EVS)
    generator = torch.Generator().manual_seed(0)
    rounded = perturb(frames, share=0.0, generator=generator)
    assert torch.allclose(rounded * 255, (rounded * 255).round(), atol=1e-4)
    changed = perturb(frames, share=1.0, generator=generator)
    assert 0.005 < (changed - frames).abs().mean() < 0.05
    assert changed.min() >= 0
    assert changed.max() <= 1


@pytest.mark.parametrize(
    ("evs", "pattern"),
    [((-2, 2), "lacks 0"), ((0, 2, 1), "must rise"), ((0,), "1 frames"), (range(26), "26 frames")],
)
def test_mistakes_in_exposures(evs, pattern):
    with pytest.raises(ZooError, match=pattern):
        check_evs(list(evs))


# diffusers 0.42 hands torch tensors to numpy 2: https://github.com/huggingface/diffusers
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("sigma", [0.05, 1.7, 40.0])
def test_denoising_is_the_v_prediction_of_diffusers(sigma):
    """One step of their scheduler from sigma, against our scalings and Euler's method."""
    scheduler = EulerDiscreteScheduler(
        prediction_type="v_prediction",
        use_karras_sigmas=True,
        sigma_min=sigma / 2,
        sigma_max=sigma,
        timestep_type="continuous",
        timestep_spacing="leading",
        num_train_timesteps=1000,
    )
    scheduler.set_timesteps(2)
    z, out = torch.randn(1, 2, 4, 3, 3), torch.randn(1, 2, 4, 3, 3)
    first, second = scheduler.sigmas[:2].tolist()
    c = edm.scalings(torch.tensor([first]))
    scaled = scheduler.scale_model_input(z, scheduler.timesteps[0])
    assert torch.allclose(scaled, c.into * z, atol=1e-6)
    assert float(scheduler.timesteps[0]) == pytest.approx(float(c.noise), abs=1e-5)
    theirs = scheduler.step(out, scheduler.timesteps[0], z).prev_sample

    def denoise(x, level):
        scales = edm.scalings(level)
        return scales.skip * x + scales.out * out

    ours = edm.euler(denoise, z / first, [first, second])
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5 * first)


def test_loss_weight_makes_the_loss_that_of_the_network():
    sigma = torch.tensor([0.3, 5.0])
    c = edm.scalings(sigma)
    assert torch.allclose(edm.loss_weight(sigma) * c.out.square(), torch.ones(2, 1, 1, 1, 1))


def test_sampler_of_a_known_distribution():
    """Gaussian data have a closed-form denoiser: samples must have their mean and deviation."""
    mean, deviation = 1.5, 0.5
    noise = torch.randn(20000, 1, 1, 1, 1, generator=torch.Generator().manual_seed(0))

    def denoise(z, sigma):
        s = sigma.view(-1, 1, 1, 1, 1).square()
        return (deviation**2 * z + s * mean) / (deviation**2 + s)

    samples = edm.euler(denoise, noise, edm.karras_sigmas(60, 80.0))
    assert float(samples.mean()) == pytest.approx(mean, abs=0.05)
    assert float(samples.std()) == pytest.approx(deviation, abs=0.05)
    sigmas = edm.karras_sigmas(5, 80.0)
    assert sigmas[0] == pytest.approx(80)
    assert sigmas[-2:] == pytest.approx([0.002, 0])


def test_tiles_of_a_local_function_are_its_whole():
    z, other = torch.randn(1, 2, 3, 50, 37), torch.randn(1, 2, 3, 50, 37)
    (found,) = tiled(lambda a, b: [a + 2 * b], [z, other], 16, 4)
    assert torch.allclose(found, z + 2 * other, atol=1e-5)


def test_joint_bilateral_upsampling_follows_the_guide():
    guide = torch.zeros(1, 3, 32, 32)
    guide[..., 13:] = 1.0  # an edge between the pixels of the small image
    low_guide = torch.nn.functional.avg_pool2d(guide, 4)
    low = torch.zeros(1, 1, 8, 8)
    low[..., 4:] = 1.0
    low[..., 3] = 0.75  # the mixed column
    up = joint_bilateral_upsample(low, low_guide, guide)
    assert up[..., :12].max() < 0.05
    assert up[..., 17:].min() > 0.95


def test_pu21_at_known_luminance():
    assert float(pu21_encode(torch.tensor(100.0))) == pytest.approx(256.4, abs=0.5)
    assert float(pu21_encode(torch.tensor(0.005))) == pytest.approx(0, abs=0.5)
    assert torch.equal(pu21_encode(torch.tensor(1e5)), pu21_encode(torch.tensor(1e4)))
    metric = PU21PSNR(white=100.0)
    metric.update(torch.full((1, 3, 4, 4), 1.0), torch.full((1, 3, 4, 4), 2.0))
    step = float(pu21_encode(torch.tensor(200.0)) - pu21_encode(torch.tensor(100.0)))
    assert float(metric.compute()) == pytest.approx(20 * np.log10(PEAK / step), abs=1e-3)


def test_errors_by_what_the_input_lost():
    image = torch.full((1, 3, 1, 2), 0.5)
    image[..., 1] = 1.0
    target = decode(image).clone()
    target[..., 1] = 4.0
    pred = decode(image)
    clipped, overall, again = ClippedError(), Log2MAE(), ReexposurePSNR()
    for metric in (clipped, overall, again):
        metric.update(pred, target, image)
    assert float(clipped.compute()) == pytest.approx(2, abs=0.01)
    assert float(overall.compute()) == pytest.approx(1, abs=0.01)
    assert float(again.compute()) > 90
    clipped.update(pred[..., :1], target[..., :1], image[..., :1])  # nothing clipped: not counted
    assert float(clipped.compute()) == pytest.approx(2, abs=0.01)


def test_alignment_uses_well_exposed_pixels_alone():
    image = torch.full((1, 3, 1, 4), 0.5)
    image[..., 3] = 1.0
    target = torch.full((1, 3, 1, 4), 0.4)
    target[..., 3] = 50.0
    pred = torch.full((1, 3, 1, 4), 0.2)
    assert torch.allclose(align(pred, target, image), torch.full((1, 3, 1, 4), 0.4))


def test_tone_mapping_keeps_order_and_range():
    grey = torch.logspace(-3, 2, 50).expand(3, 1, 50)
    shown = tone_map(grey)
    assert (shown.diff(dim=-1) >= 0).all()
    assert shown.min() >= 0
    assert shown.max() <= 1
