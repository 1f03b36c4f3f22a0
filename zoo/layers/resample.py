"""Resampling of images as the published protocols have it."""

from torch import Tensor
from torch.nn import functional as F


def bicubic(image: Tensor, size: tuple[int, int]) -> Tensor:
    """Resizes as ``PIL.Image.resize(..., BICUBIC)`` does with float images, down and up.

    PyTorch has PIL's kernel (a = -0.5, cut off and renormalised at the borders, widened when
    shrinking) only under the name of antialiasing; its plain bicubic mode has a = -0.75.

    Args:
        image: Any unit. Shape: (B, C, h, w).
        size: Height and width wanted.

    Returns:
        float32, also under autocast. Shape: (B, C, H, W).
    """
    return F.interpolate(image.float(), size=tuple(size), mode="bicubic", antialias=True)
