"""The backbone of DegBins, and the convolutions that its head shares."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.errors import ZooError

PATCH = 4  # the backbone works on pixel blocks of this side


def channels_last(x: Tensor) -> Tensor:
    """The same values with the channels of a pixel side by side, where convolutions are fastest."""
    return x.to(memory_format=torch.channels_last)


def conv3x3(in_channels: int, out_channels: int, bias: bool = True) -> nn.Conv2d:
    """A convolution with He's initialisation, under which signals keep their size.

    Under PyTorch's own they shrink by layers, and the constant biases drown them.
    """
    conv = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=bias)
    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
    if conv.bias is not None:
        nn.init.zeros_(conv.bias)
    return conv


class Pointwise(nn.Linear):
    """conv1x1 as a matrix product, which on channels-last maps needs no copy.

    Args:
        in_channels: Of the map that comes.
        out_channels: Of the map that goes.
        bias: Add one.
        zero: Start at zero, so that the network starts as plain upsampling; else as He's.
    """

    def __init__(
        self, in_channels: int, out_channels: int, bias: bool = True, zero: bool = False
    ) -> None:
        super().__init__(in_channels, out_channels, bias)
        if zero:
            nn.init.zeros_(self.weight)
        else:
            nn.init.kaiming_normal_(self.weight, nonlinearity="relu")
        if bias:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Shape: (B, C_in, H, W) to (B, C_out, H, W)."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ChannelAttention(nn.Module):
    """Squeeze-excitation: channels weighted by a bottleneck of their means over the image."""

    def __init__(self, width: int, reduction: int = 16) -> None:
        super().__init__()
        self.squeeze = Pointwise(width, max(width // reduction, 4))
        self.excite = Pointwise(max(width // reduction, 4), width)

    def forward(self, x: Tensor) -> Tensor:
        """Shape: (B, W, H, W) to the same."""
        squeezed = F.gelu(self.squeeze(x.mean(dim=(2, 3), keepdim=True)))
        weight: Tensor = self.excite(squeezed).sigmoid()  # (B, W, 1, 1)
        return x * weight


class ResidualBlock(nn.Module):
    """x + [attention](conv3x3(GELU(conv3x3(x)))), no normalisation."""

    def __init__(self, width: int, attention: bool) -> None:
        super().__init__()
        self.conv1 = conv3x3(width, width)
        self.conv2 = conv3x3(width, width)
        self.attention = ChannelAttention(width) if attention else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Shape: (B, W, H, W) to the same."""
        y: Tensor = self.attention(self.conv2(F.gelu(self.conv1(x))))
        return x + y


class Backbone(nn.Module):
    """Features of depth and guide: a plain residual network on blocks of 4x4 pixels.

    Deliberately without refinements, so that heads can be compared on it.
    """

    def __init__(
        self, channels: int, width: int, blocks: int, guide: bool, attention: bool
    ) -> None:
        super().__init__()
        lifted = channels // 2
        self.depth_stem = conv3x3(PATCH**2, width)
        self.guide_stem = conv3x3(3 * PATCH**2, width) if guide else None
        self.fuse = Pointwise(2 * width if guide else width, width)
        self.blocks = nn.Sequential(*(ResidualBlock(width, attention) for _ in range(blocks)))
        self.lift = Pointwise(width, lifted * PATCH**2)
        self.out = conv3x3(lifted + (4 if guide else 1), channels)

    def forward(self, d_up: Tensor, guide: Tensor | None) -> Tensor:
        """Shape: (B, 1, H, W) and (B, 3, H, W) to (B, C, H, W); H and W multiples of 4."""
        x = d_up
        if self.guide_stem is not None:
            if guide is None:
                raise ZooError("This network was built with a guide; forward needs it.")
            x = torch.cat([x, guide - 0.5], dim=1)  # (B, 4, H, W)
        z = channels_last(F.pixel_unshuffle(x, PATCH))  # (B, 16 + 48, H/4, W/4)
        stems = [self.depth_stem(z[:, : PATCH**2])]
        if self.guide_stem is not None:
            stems.append(self.guide_stem(z[:, PATCH**2 :]))
        z = self.lift(self.blocks(self.fuse(torch.cat(stems, dim=1))))  # (B, 16 * C/2, H/4, W/4)
        y = F.pixel_shuffle(z, PATCH)  # (B, C/2, H, W)
        return F.gelu(self.out(torch.cat([y, channels_last(x)], dim=1)))
