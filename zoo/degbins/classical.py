"""Depth super-resolution without training: the network's input, and two baselines."""

import torch
from scipy.ndimage import distance_transform_edt
from torch import Tensor
from torch.nn import functional as F

MIN_EXTENT = 0.1  # metres; keeps the noise of a flat scene from being blown up to full range


def known_depth(depth: Tensor) -> Tensor:
    """Where a depth map, with 0 or NaN for unknown, is known. Same shape, bool."""
    return depth.isfinite() & (depth > 0)


def nearest_known(depth: Tensor, known: Tensor) -> Tensor:
    """:func:`fill_unknown` in operations that a graph can hold, for export.

    The squared distance separates: first the nearest known row of each column, then the column.

    Args:
        depth: 0 or NaN where unknown. Shape: (B, 1, h, w).
        known: Where it is known. Same shape, bool.

    Returns:
        Known everywhere. Shape: (B, 1, h, w).
    """
    height, width = depth.shape[-2:]
    far = float(2 * (height + width)) ** 2
    y = torch.arange(height, device=depth.device)
    x = torch.arange(width, device=depth.device)
    rows = (y[:, None] - y).square().float()[None, None, :, :, None]  # (1, 1, h, h', 1)
    cost, row = (rows + far * (~known).float()[:, :, None]).min(dim=3)  # (B, 1, h, w)
    columns = (x[:, None] - x).square().float()[None, None, None]  # (1, 1, 1, w, w')
    column = (columns + cost[:, :, :, None]).argmin(dim=-1)  # (B, 1, h, w)
    row = row.gather(3, column)
    filled = depth.nan_to_num().flatten(2).gather(2, (row * width + column).flatten(2))
    return filled.view_as(depth) * known.any(dim=(2, 3), keepdim=True)


def fill_unknown(depth: Tensor) -> Tensor:
    """Gives unknown pixels the depth of the nearest known one.

    Args:
        depth: 0 or NaN where unknown. Shape: (B, 1, h, w).

    Returns:
        Known everywhere; an image without any known pixel becomes 0. Shape: (B, 1, h, w).
    """
    known = known_depth(depth)
    if torch.compiler.is_exporting():
        return nearest_known(depth, known)
    if bool(known.all()):
        return depth
    depth = depth.masked_fill(~known, 0)
    batch, _, height, width = depth.shape
    # One transform for the whole batch; no path to another image is shorter than one within.
    between = float(height + width)
    nearest = distance_transform_edt(
        (~known)[:, 0].cpu().numpy(),
        sampling=(between, 1.0, 1.0),
        return_distances=False,
        return_indices=True,
    )
    _, row, column = torch.from_numpy(nearest).to(depth.device).long()  # (B, h, w) each
    flat = (row * width + column).view(batch, -1)
    return depth.flatten(1).gather(1, flat).view_as(depth)


def depth_range(depth: Tensor) -> tuple[Tensor, Tensor]:
    """Offset and extent of the known depths of each image, which normalise it to 0..1.

    They come from the low-resolution input; taken from the truth they would leak it.

    Args:
        depth: Low-resolution depth in metres, 0 or NaN where unknown. Shape: (B, 1, h, w).

    Returns:
        Minimum, and maximum less minimum but at least 0.1 m. Shape of each: (B, 1, 1, 1).
    """
    known = known_depth(depth)
    inf = float("inf")
    low = depth.masked_fill(~known, inf).amin(dim=(1, 2, 3), keepdim=True)
    high = depth.masked_fill(~known, -inf).amax(dim=(1, 2, 3), keepdim=True)
    low = low.nan_to_num(posinf=0.0)
    return low, (high - low).clamp_min(MIN_EXTENT)


def box_mean(x: Tensor, radius: int) -> Tensor:
    """Mean over the square window of ``radius``, at borders over the part inside. Same shape."""
    side = 2 * radius + 1
    for kernel, padding in (((side, 1), (radius, 0)), ((1, side), (0, radius))):
        x = F.avg_pool2d(x, kernel, stride=1, padding=padding, count_include_pad=False)
    return x


def guided_filter(guide: Tensor, depth: Tensor, radius: int = 8, eps: float = 1e-4) -> Tensor:
    """Guided image filter: depth as a locally linear function of the guide's colours.

    Reference:
        "Guided Image Filtering", K. He, J. Sun, X. Tang, TPAMI 2013, eq. 19 to 21 (colour).

    Args:
        guide: Grey or colour image in 0..1. Shape: (B, C, H, W).
        depth: Shape: (B, 1, H, W).
        radius: Of the windows, pixels.
        eps: Regularisation, in squared units of the guide.

    Returns:
        Filtered depth. Shape: (B, 1, H, W).
    """
    channels = guide.shape[1]
    mean_i, mean_p = box_mean(guide, radius), box_mean(depth, radius)
    cov_ip = box_mean(guide * depth, radius) - mean_i * mean_p  # (B, C, H, W)
    products = (guide[:, :, None] * guide[:, None]).flatten(1, 2)  # (B, C*C, H, W)
    mean_products = (mean_i[:, :, None] * mean_i[:, None]).flatten(1, 2)
    cov = (box_mean(products, radius) - mean_products).permute(0, 2, 3, 1)  # (B, H, W, C*C)
    cov = cov.reshape(*cov.shape[:3], channels, channels)
    ridge = eps * torch.eye(channels, device=guide.device)
    a = torch.linalg.solve(cov + ridge, cov_ip.permute(0, 2, 3, 1))
    a = a.permute(0, 3, 1, 2)  # (B, H, W, C) -> (B, C, H, W)
    b = mean_p - (a * mean_i).sum(dim=1, keepdim=True)
    return (box_mean(a, radius) * guide).sum(dim=1, keepdim=True) + box_mean(b, radius)
