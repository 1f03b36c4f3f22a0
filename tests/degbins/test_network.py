"""The network's promises: distributions, ranges, parameters, precision, sizes, tiles."""

import itertools
import math

import pytest
import torch
from torch.nn import functional as F

from zoo.degbins.backbone import PATCH, channels_last
from zoo.degbins.bins import (
    StageBins,
    adaptive_centers,
    deviation,
    expected_residual,
    uniform_centers,
)
from zoo.degbins.head import FiLM, to_cells
from zoo.degbins.loss import bin_cross_entropy, degradation_loss, reconstruction_loss
from zoo.degbins.moments import local_moments
from zoo.degbins.network import MIN_STD, WINDOW, DegBinsNet
from zoo.errors import ZooError
from zoo.layers.tiling import tile_starts, tiled

SMALL = {"channels": 6, "width": 8, "blocks": 2, "bins": 5}
VARIANTS = {
    "bins": {},
    "additive": {"head": "additive"},
    "one stage": {"stages": 1, "bins": 24},
    "no degradation": {"deg_adapt": False},
    "no degradation, no kernels": {"deg_adapt": False, "predict_kernels": False},
    "no kernels": {"predict_kernels": False},
    "no guide": {"guide": False},
    "adaptive": {"bin_widths": "adaptive"},
    "attention": {"attention": True, "embed_channels": 12},
}
every_variant = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())


def build(perturbed=True, **options):
    """A small network; perturbed where it starts at zero, since a new one just upsamples."""
    torch.manual_seed(0)
    net = DegBinsNet(**SMALL | options)
    if perturbed:
        with torch.no_grad():
            for parameter in net.parameters():
                if not parameter.any():
                    parameter.normal_(std=0.2)
    return net


def inputs(batch=2, height=24, width=20):
    rng = torch.Generator().manual_seed(1)
    d_up = torch.rand(batch, 1, height, width, generator=rng)
    return d_up, torch.rand(batch, 3, height, width, generator=rng)


def unit(d_up):
    """What ranges and residuals are relative to."""
    return 4 * local_moments(d_up, WINDOW, MIN_STD)[1]


def count(net):
    return sum(parameter.numel() for parameter in net.parameters())


@every_variant
def test_starts_as_plain_upsampling(options):
    d_up, guide = inputs()
    out = build(perturbed=False, **options)(d_up, guide)
    for residual in out.residuals:
        torch.testing.assert_close(d_up + residual, d_up, atol=1e-6, rtol=0)


@every_variant
def test_every_parameter_learns(options):
    net = build(**options)
    d_up, guide = inputs()
    out = net(d_up, guide, return_aux=True)
    target = d_up + 0.1
    mask = torch.ones_like(d_up).bool()
    loss = reconstruction_loss([d_up + residual for residual in out.residuals], target, mask)
    if out.kernels is not None:
        loss = loss + degradation_loss(out.kernels, d_up + out.residuals[-1], d_up)
    loss.backward()
    still = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.any()]
    assert still == []


def test_learns_from_where_it_starts():
    net = build(perturbed=False)
    d_up, _ = inputs()
    guide = torch.linspace(0, 1, d_up.shape[-1]).expand(2, 3, *d_up.shape[-2:])
    target = d_up + 0.2 * (guide[:, :1] - 0.5)
    mask = torch.ones_like(d_up).bool()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        out = net(d_up, guide)
        loss = reconstruction_loss([d_up + residual for residual in out.residuals], target, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("bin_widths", ["uniform", "adaptive"])
def test_residual_lies_in_the_range_and_the_range_around_the_former_one(bin_widths):
    d_up, guide = inputs()
    out = build(bin_widths=bin_widths)(d_up, guide, return_aux=True)
    former = [torch.zeros_like(d_up), *out.residuals]
    for s, (bins, before, after) in enumerate(zip(out.bins, former, former[1:], strict=False)):
        torch.testing.assert_close(bins.logits.softmax(dim=1).sum(dim=1), torch.ones(2, 24, 20))
        assert (bins.low <= after).all()
        assert (after <= bins.high).all()
        for half_width in (before - bins.low, bins.high - before):
            relative = (half_width / unit(d_up) / (0.3 * 0.4**s)).log()
            assert relative.abs().max() <= 1.5 + 1e-4
            assert relative.std() > 0.01
        assert (bins.centers.diff(dim=1) > 0).all()
    assert len(out.bins) == len(out.residuals) == 3
    assert out.std.min() > 0
    assert out.kernels.shape == (2, 25, 24, 20)


@pytest.mark.parametrize("adaptive", [False, True])
def test_expectation_equals_explicit_bins(adaptive):
    torch.manual_seed(0)
    logits = 3 * torch.randn(2, 7, 9, 8)
    low = torch.rand(2, 1, 9, 8) - 1
    high = low + torch.rand(2, 1, 9, 8)
    centers = adaptive_centers(torch.randn_like(logits)) if adaptive else uniform_centers(7)
    bins = StageBins(logits, low, high, centers)
    mean, std = expected_residual(bins), deviation(bins)
    c = (low + (high - low) * centers).double()  # (B, K, H, W): the bins that are never built
    p = logits.double().softmax(dim=1)
    explicit = (p * c).sum(dim=1, keepdim=True)
    spread = (p * (c - explicit).square()).sum(dim=1, keepdim=True).sqrt()
    torch.testing.assert_close(mean.double(), explicit, atol=1e-6, rtol=0)
    torch.testing.assert_close(std.double(), spread, atol=1e-5, rtol=0)


def test_certain_bin_has_no_deviation_and_finite_gradients():
    logits = torch.tensor([0.0, 200.0, 0.0]).view(1, 3, 1, 1).requires_grad_()
    low = torch.full((1, 1, 1, 1), -0.3)
    bins = StageBins(logits, low, -low, uniform_centers(3))
    mean, std = expected_residual(bins), deviation(bins)
    (mean + std).sum().backward()
    assert mean.item() == pytest.approx(0, abs=1e-6)
    assert std.item() < 1e-5
    assert logits.grad.isfinite().all()


def test_adaptive_centers_by_hand():
    widths = torch.tensor([0.5, 0.25, 0.25])
    centers = adaptive_centers(widths.log().view(1, 3, 1, 1)).flatten()
    torch.testing.assert_close(centers, torch.tensor([0.25, 0.625, 0.875]), atol=1e-3, rtol=0)


@pytest.mark.parametrize("radius", [1, 3])
def test_local_moments_are_those_of_the_window(radius):
    x = torch.rand(2, 1, 9, 10)
    mean, std = local_moments(x, radius, min_std=0.0)
    window = x[1, 0, 4 - radius : 5 + radius, 5 - radius : 6 + radius]
    torch.testing.assert_close(mean[1, 0, 4, 5], window.mean())
    torch.testing.assert_close(std[1, 0, 4, 5], window.std(correction=0), atol=1e-5, rtol=0)
    corner = x[0, 0, : radius + 1, : radius + 1]
    torch.testing.assert_close(mean[0, 0, 0, 0], corner.mean())
    flat = local_moments(torch.full_like(x, 3.0), radius, min_std=0.5)[1]
    torch.testing.assert_close(flat, torch.full_like(x, 0.5))


def test_offset_of_the_depth_does_not_matter():
    d_up, guide = inputs()
    net = build()
    here, there = net(d_up, guide), net(d_up + 0.5, guide)
    torch.testing.assert_close(here.residuals[-1], there.residuals[-1], atol=1e-4, rtol=0)


def test_embedding_relates_features_and_estimate_of_a_cell():
    embed = build().head.embed
    features, estimate, d_up = torch.randn(2, 6, 12, 8), *torch.rand(2, 2, 1, 12, 8)
    on_estimate = F.conv2d(to_cells(estimate), embed.on_estimate.weight, padding=1)
    patches = embed.on_features.weight.flatten(1)  # a cell's features, all at once
    on_features = torch.einsum("en,bnc->bec", patches, F.unfold(features, 4, stride=4))
    on_features = on_features + embed.on_features.bias[:, None]
    e_hr = F.gelu(on_features.view(2, 6, 3, 2) + on_estimate)
    prepared = embed.prepare(features, d_up)
    relate = torch.cat([embed.on_difference.weight, embed.on_product.weight], dim=1)
    pair = torch.cat([e_hr - prepared[1], e_hr * prepared[1]], dim=1)
    expected = F.conv2d(pair, relate[..., None, None], embed.on_difference.bias)
    torch.testing.assert_close(embed(*prepared, estimate), expected, atol=1e-5, rtol=1e-5)


def test_embedding_of_the_input_does_not_see_the_estimate_and_changes_with_the_blur():
    embed = build().head.embed
    features, d_up = torch.randn(1, 6, 12, 8), torch.rand(1, 1, 12, 8)
    sharp, blurred = (embed.prepare(features, x) for x in (d_up, F.avg_pool2d(d_up, 3, 1, 1)))
    assert torch.equal(sharp[0], blurred[0])
    assert not torch.allclose(sharp[1], blurred[1])


def test_film_modulates_each_pixel_by_its_cell():
    film = FiLM(5, 6)
    features, embedding = torch.randn(2, 6, 12, 8), torch.randn(2, 5, 3, 2)
    gain, shift = (
        F.interpolate(conv(embedding), scale_factor=4, mode="nearest")
        for conv in (film.gain, film.shift)
    )
    expected = features * (1 + gain) + shift
    torch.testing.assert_close(film(features, embedding), expected)
    last = features.to(memory_format=torch.channels_last)
    torch.testing.assert_close(film(last, embedding), expected)


def test_widening_is_the_width_of_the_last_range_over_the_neutral_one():
    d_up, guide = inputs()
    out = build()(d_up, guide, return_aux=True)
    neutral = 2 * 0.3 * 0.4**2 * unit(d_up)
    width = out.bins[-1].high - out.bins[-1].low
    torch.testing.assert_close(out.widening, width / neutral, atol=1e-4, rtol=1e-4)
    fresh = build(perturbed=False)(d_up, guide).widening
    torch.testing.assert_close(fresh, torch.ones_like(fresh))
    assert build(head="additive")(d_up, guide).widening is None


def test_default_size():
    assert 0.21e6 < count(DegBinsNet()) < 0.25e6


LARGE = {"channels": 64, "width": 128, "blocks": 16, "bins": 16, "embed_channels": 256}


@pytest.mark.parametrize(
    "options",
    [{}, {"predict_kernels": False}, {"stages": 1, "bins": 24}, LARGE | {"attention": True}],
    ids=["default", "no kernels", "one stage", "real scale"],
)
def test_additive_head_has_as_many_parameters(options):
    bins, additive = DegBinsNet(**options), DegBinsNet(**options, head="additive")
    assert count(additive) == pytest.approx(count(bins), rel=0.02)
    assert count(additive.backbone) == count(bins.backbone)


def test_guide_changes_the_result_only_if_used():
    d_up, guide = inputs()
    with_guide, without = build(), build(guide=False)
    assert not torch.equal(
        with_guide(d_up, guide).residuals[-1], with_guide(d_up, 1 - guide).residuals[-1]
    )
    assert torch.equal(without(d_up, guide).residuals[-1], without(d_up, None).residuals[-1])
    with pytest.raises(ZooError, match="guide"):
        with_guide(d_up, None)


def test_auxiliary_outputs_only_on_request():
    d_up, guide = inputs()
    net = build(deg_adapt=False)
    plain, full = net(d_up, guide), net(d_up, guide, return_aux=True)
    assert plain.bins == []
    assert plain.embedding is None
    assert plain.kernels is None
    assert full.embedding.shape == (2, 6, 6, 5)
    for a, b in zip(plain.residuals, full.residuals, strict=True):
        assert torch.equal(a, b)
    additive = build(head="additive")(d_up, guide, return_aux=True)
    assert additive.std is None
    assert additive.bins == []


def test_narrower_bins_from_stage_to_stage():
    d_up, guide = inputs()
    bins = build(perturbed=False).forward(d_up, guide, return_aux=True).bins
    extents = [((stage.high - stage.low) / unit(d_up)).mean().item() for stage in bins]
    assert extents == pytest.approx([0.6, 0.24, 0.096])


@pytest.mark.parametrize(("height", "width"), [(21, 18), (4, 7), (33, 35)])
def test_any_size(height, width):
    d_up, guide = inputs(1, height, width)
    out = build()(d_up, guide, return_aux=True)
    assert out.residuals[-1].shape == out.std.shape == (1, 1, height, width)
    assert out.kernels.shape == (1, 25, height, width)


@every_variant
def test_bfloat16_keeps_the_depth_in_float32(options):
    net = build(**options)
    d_up, guide = inputs()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(d_up, guide, return_aux=True)
    loss = sum(residual.abs().mean() for residual in out.residuals)
    loss.backward()
    for residual in out.residuals:
        assert residual.dtype == torch.float32
        assert residual.isfinite().all()
    for bins in out.bins:
        assert bins.logits.dtype == torch.bfloat16
        assert bins.low.dtype == bins.high.dtype == bins.centers.dtype == torch.float32
        residual = (d_up + 0.1) - d_up
        assert bin_cross_entropy(bins, residual, residual > 0).isfinite()
    exact = net(d_up, guide).residuals[-1]
    torch.testing.assert_close(out.residuals[-1], exact, atol=0.1, rtol=0.1)


def test_memory_format_of_the_input_does_not_matter():
    net = build()
    d_up, guide = inputs()
    a, b = net(d_up, guide), net(channels_last(d_up), channels_last(guide))
    torch.testing.assert_close(a.residuals[-1], b.residuals[-1])


@pytest.mark.slow
def test_exports_with_free_sizes():
    net = build(blocks=1, stages=2).eval()
    dims = {0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
    program = torch.export.export(net, inputs(2, 24, 20), dynamic_shapes=(dims, dims))
    d_up, guide = inputs(3, 32, 28)
    result = program.module()(d_up, guide).residuals[-1]
    torch.testing.assert_close(result, net(d_up, guide).residuals[-1])


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"head": "bin"}, "head is 'bin'.*Did you mean 'bins'"),
        ({"bin_widths": "equal"}, "bin_widths is 'equal', not one of uniform, adaptive"),
        ({"bin_widths": "adaptive", "deg_adapt": False}, "deg_adapt=True"),
    ],
)
def test_unknown_options(options, pattern):
    with pytest.raises(ZooError, match=pattern):
        build(**options)


# -- tiling ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 128, 129, 150, 200, 301, 1000])
def test_tiles_cover_the_axis_and_overlap(size):
    tile, overlap = 96, 16
    starts = tile_starts(size, tile, overlap, PATCH)
    assert starts[0] == 0
    assert starts[-1] + tile >= size
    assert starts == sorted(set(starts))
    assert all(start % 4 == 0 for start in starts)
    assert all(b - a <= tile - overlap for a, b in itertools.pairwise(starts))


@pytest.mark.parametrize(("height", "width"), [(150, 203), (64, 230), (96, 96)])
def test_tiles_of_a_pointwise_function_are_invisible(height, width):
    d_up, guide = inputs(2, height, width)

    def fn(d_up, guide):
        return [d_up * guide.mean(dim=1, keepdim=True), guide.square()]

    whole = fn(d_up, guide)
    for part, expected in zip(tiled(fn, [d_up, guide], 96, 16, PATCH, 0.25), whole, strict=True):
        torch.testing.assert_close(part, expected)


def test_tiles_of_the_network_equal_the_whole_image():
    net = build(blocks=1)  # one pixel sees 40 around it
    d_up, guide = inputs(1, 40, 730)

    def fn(d_up, guide):
        out = net(d_up, guide)
        return [*out.residuals, out.std]

    with torch.inference_mode():
        whole, parts = fn(d_up, guide), tiled(fn, [d_up, guide], 336, 160, PATCH, 0.25)
    assert whole[-2].std() > 0.01
    for part, expected in zip(parts, whole, strict=True):
        torch.testing.assert_close(part, expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize(("tile", "overlap"), [(30, 4), (32, 16), (32, 0), (64, 6)])
def test_tiles_that_do_not_fit(tile, overlap):
    with pytest.raises(ZooError, match=f"tile is {tile} and overlap {overlap}"):
        tiled(lambda d_up, guide: [d_up], inputs(1, 70, 70), tile, overlap, PATCH)


def test_logits_of_the_first_stage_start_uniform():
    d_up, guide = inputs()
    bins = build(perturbed=False)(d_up, guide, return_aux=True).bins[0]
    torch.testing.assert_close(bins.logits.softmax(dim=1), torch.full((2, 5, 24, 20), 1 / 5))
    mean, std = expected_residual(bins), deviation(bins)
    assert mean.abs().max() < 1e-7
    # of 5 equal bins over 0.6: 0.6 * sqrt((1 - 1 / 25) / 12)
    assert (std / unit(d_up)).mean().item() == pytest.approx(0.6 * math.sqrt(0.08), rel=1e-5)
