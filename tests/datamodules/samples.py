"""Data modules set up, and what every sample of them must be."""

import torch

from zoo.datamodules import GuidedDepthDataModule

SMALL = {"scale": 8, "crop": 32, "eval_repeats": 1}
SENSOR = SMALL | {"scale": 1, "degradation": "real"}


def ready(stage: str, **options) -> GuidedDepthDataModule:
    module = GuidedDepthDataModule(**options)
    module.setup(stage)
    return module


def check_sample(sample, scale=8):
    lr, guide, depth, mask = (sample[key] for key in ("lr_depth", "guide", "depth", "mask"))
    height, width = depth.shape[1:]
    assert lr.shape == (1, height // scale, width // scale)
    assert guide.shape == (3, height, width)
    assert mask.shape == depth.shape == (1, height, width)
    assert lr.shape[1] * scale == height
    assert {lr.dtype, guide.dtype, depth.dtype} == {torch.float32}
    assert mask.dtype == torch.bool
    assert 0 <= guide.min() < guide.max() <= 1
    assert mask.any()
    assert (depth > 0).all()
    assert torch.isfinite(lr).all()
