"""Depth errors against a plain implementation of the field's protocol."""

import numpy as np
import pytest
import torch
from torchmetrics import MetricCollection

from zoo.degbins.metrics import RMSE, EdgeRMSE, depth_metrics, near_edges


def batch(count=3, height=30, width=26, seed=0):
    rng = torch.Generator().manual_seed(seed)
    target = 1 + torch.rand(count, 1, height, width, generator=rng)
    pred = target + 0.1 * torch.randn(count, 1, height, width, generator=rng)
    mask = torch.rand(count, 1, height, width, generator=rng) > 0.2
    return pred, target, mask


def naive(pred, target, mask, scale):
    """The protocol, image by image and pixel by pixel."""
    rmse, mae, edge, delta, squares = [], [], [], [], []
    for p, t, m, s in zip(
        pred[:, 0].numpy(), target[:, 0].numpy(), mask[:, 0].numpy(), scale, strict=True
    ):
        height, width = t.shape
        jumps = [
            (y, x)
            for y in range(height)
            for x in range(width)
            for v, u in ((y + 1, x), (y, x + 1), (y - 1, x), (y, x - 1))
            if 0 <= v < height and 0 <= u < width and m[y, x] and m[v, u]
            if abs(t[y, x] - t[v, u]) > 0.05 * min(t[y, x], t[v, u])
        ]
        near = np.zeros_like(m)
        for y, x in jumps:
            near[max(y - 4, 0) : y + 5, max(x - 4, 0) : x + 5] = True
        p, t, m, near = (a[6:-6, 6:-6] for a in (p, t, m, near))
        if not m.any():
            continue
        error = s * np.abs(p - t)[m]
        rmse.append(np.sqrt(np.mean(error**2)))
        mae.append(np.mean(error))
        squares.append(error**2)
        delta.append(np.mean(np.maximum(p / t, t / p)[m] < 1.05))
        if (near & m).any():
            edge.append(np.sqrt(np.mean((s * np.abs(p - t)[near & m]) ** 2)))
    return {
        "rmse": np.mean(rmse),
        "mae": np.mean(mae),
        "rmse_pooled": np.sqrt(np.mean(np.concatenate(squares))),
        "rmse_edge": np.mean(edge) if edge else 0,
        "delta_105": np.mean(delta),
    }


def compute(collection):
    return {name: value.item() for name, value in collection.compute().items()}


@pytest.mark.parametrize("smooth", [False, True])
def test_equals_the_protocol(smooth):
    pred, target, mask = batch()
    if smooth:  # but for one step in the last image
        target = torch.full_like(target, 2)
        target[2, :, :, 13:] = 3
        pred = target + 0.05 * torch.randn(pred.shape, generator=torch.Generator().manual_seed(1))
    scale = torch.tensor([100.0, 10.0, 1.0])
    metrics = MetricCollection(depth_metrics())
    metrics.update(pred[:2], target[:2], mask[:2], scale[:2])
    metrics.update(pred[2:], target[2:], mask[2:], scale[2:])
    assert compute(metrics) == pytest.approx(naive(pred, target, mask, scale.tolist()), rel=1e-5)


def test_mean_of_images_is_not_the_pooled_error():
    target = torch.full((2, 1, 20, 20), 2.0)
    error = torch.tensor([1.0, 3.0]).view(2, 1, 1, 1)
    metrics = MetricCollection(depth_metrics())
    metrics.update(target + error, target, torch.ones_like(target).bool(), 100.0)
    result = compute(metrics)
    assert result["rmse"] == pytest.approx(200)
    assert result["rmse_pooled"] == pytest.approx(100 * 5**0.5)
    assert result["delta_105"] == 0


def test_truth_has_no_error():
    _, target, mask = batch()
    metrics = MetricCollection(depth_metrics())
    metrics.update(target.masked_fill(~mask, 0), target.masked_fill(~mask, float("nan")), mask)
    assert compute(metrics) == {
        "rmse": 0,
        "mae": 0,
        "rmse_pooled": 0,
        "rmse_edge": 0,
        "delta_105": 1,
    }


def test_images_without_known_pixels_or_edges_are_skipped():
    pred, target, mask = batch(2)
    mask[1] = False
    mask[1, :, :6] = True  # all of it cropped
    alone, both = RMSE(), RMSE()
    alone.update(pred[:1], target[:1], mask[:1])
    both.update(pred, target, mask)
    assert both.compute() == alone.compute()
    nothing = MetricCollection(depth_metrics())
    nothing.update(pred, target, torch.zeros_like(mask))
    assert compute(nothing) == dict.fromkeys(depth_metrics(), 0)
    flat = EdgeRMSE()
    flat.update(pred, torch.ones_like(pred), torch.ones_like(mask))
    assert flat.compute() == 0


def test_border_does_not_count():
    pred, target, mask = batch(1)
    inside, changed = RMSE(), RMSE()
    inside.update(pred, target, mask)
    pred = pred.clone()
    pred[..., :6, :] = pred[..., -6:] = 99
    changed.update(pred, target, mask)
    assert inside.compute() == changed.compute()


def test_near_edges_reaches_four_pixels_and_needs_known_neighbours():
    depth = torch.ones(1, 1, 20, 20)
    depth[..., 10:] = 1.06  # the edge lies between columns 9 and 10
    known = torch.ones_like(depth).bool()
    assert near_edges(depth, known)[0, 0, 5].nonzero().flatten().tolist() == list(range(5, 15))
    assert not near_edges(depth.clamp(max=1.04), known).any()
    known[..., 10] = False
    assert not near_edges(depth.masked_fill(~known, float("nan")), known).any()


def test_a_collection_updates_once():
    metrics = MetricCollection(depth_metrics())
    data = batch()
    metrics.update(*data)
    assert [sorted(group) for group in metrics.compute_groups.values()] == [sorted(depth_metrics())]


def test_uneven_shards_sum_to_the_whole():
    pred, target, mask = batch(5)
    whole = MetricCollection(depth_metrics())
    whole.update(pred, target, mask, 100.0)
    shards = [MetricCollection(depth_metrics()) for _ in range(3)]  # the last is without samples
    shards[0].update(pred[:4], target[:4], mask[:4], 100.0)
    shards[1].update(pred[4:], target[4:], mask[4:], 100.0)
    for name, metric in whole.items():
        parts = [shard[name] for shard in shards]
        merged = depth_metrics()[name]
        for state in ("sums", "counts"):  # what an all-reduce does
            setattr(merged, state, sum(getattr(part, state) for part in parts))
        merged._update_count = 1
        torch.testing.assert_close(merged.compute(), metric.compute())
