"""Metrics that two or more methods use, as torchmetrics classes."""

from zoo.metrics.pu21 import PU21PSNR, PU21SSIM, pu21_encode

__all__ = ["PU21PSNR", "PU21SSIM", "pu21_encode"]
