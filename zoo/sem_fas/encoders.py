"""From the three sensors' images to one feature vector each."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import timm
import torch
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.face_files import CHANNELS, MODALITIES

CNN = "cnn4"


class ConvEncoders(nn.Module):
    """A small convolutional network for each modality: 4 x [conv 3x3 / 2, GroupNorm, SiLU]."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64, 64)) -> None:
        super().__init__()
        self.out_features = widths[-1]
        self.towers = nn.ModuleDict({m: _tower(CHANNELS[m], widths) for m in MODALITIES})

    def forward(self, images: Mapping[str, Tensor]) -> Tensor:
        """Encodes.

        Args:
            images: By modality, in 0..1. Shapes: (B, 3, H, W) and (B, 1, H, W).

        Returns:
            Shape: (B, 3, C).
        """
        features = [self.towers[m](2 * images[m] - 1) for m in MODALITIES]
        return torch.stack(features, dim=1)


def _tower(channels: int, widths: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in widths:
        layers += [
            nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False),
            nn.GroupNorm(4, width),
            nn.SiLU(),
        ]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Adapters(nn.Module):
    """A residual bottleneck for each modality, which starts as the identity.

    Args:
        features: D.
        width: Of the bottleneck.
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        count = len(MODALITIES)
        self.down = nn.Parameter(torch.randn(count, features, width) * features**-0.5)
        self.down_bias = nn.Parameter(torch.zeros(count, 1, width))
        self.up = nn.Parameter(torch.zeros(count, width, features))
        self.up_bias = nn.Parameter(torch.zeros(count, 1, features))

    def forward(self, tokens: Tensor) -> Tensor:
        """Modality by modality: (3, B N, D) gives the same shape."""
        inner = nn.functional.gelu(torch.baddbmm(self.down_bias, tokens, self.down))
        return tokens + torch.baddbmm(self.up_bias, inner, self.up)


class SharedViT(nn.Module):
    """One frozen vision transformer for all modalities, with patch embeddings and adapters of each.

    Depth and infrared are repeated to three channels. The feature is the mean of the patch tokens.

    Args:
        name: A timm model, for instance "vit_base_patch16_224.augreg_in21k".
        pretrained: Whether to fetch its weights.
        size: Side of the images, pixels.
        adapter_width: Of the bottlenecks.
        options: Further arguments of ``timm.create_model``.
    """

    trunk: Any  # a VisionTransformer
    mean: Tensor
    std: Tensor

    def __init__(
        self,
        name: str,
        pretrained: bool,
        size: int,
        adapter_width: int = 64,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        try:
            self.trunk = timm.create_model(
                name, pretrained=pretrained, num_classes=0, img_size=size, **(options or {})
            )
        except (RuntimeError, TypeError) as error:  # an unknown model, or one without img_size
            raise ZooError(
                f"encoder {name!r} is neither {CNN!r} nor a timm model: {error}"
            ) from error
        if not isinstance(self.trunk, timm.models.VisionTransformer):
            raise ZooError(f"encoder {name!r} is a {type(self.trunk).__name__}, not a ViT of timm.")
        self.trunk.requires_grad_(False).eval()
        embed = self.trunk.patch_embed
        self.embed = nn.ModuleDict(
            {m: copy.deepcopy(embed).requires_grad_(True) for m in MODALITIES}
        )
        self.out_features = int(self.trunk.embed_dim)
        self.adapters = nn.ModuleList(
            Adapters(self.out_features, adapter_width) for _ in self.trunk.blocks
        )
        config: Any = self.trunk.default_cfg
        self.register_buffer("mean", torch.tensor(config["mean"]).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(config["std"]).view(3, 1, 1), persistent=False)

    def train(self, mode: bool = True) -> SharedViT:
        """The trunk stays in eval mode."""
        super().train(mode)
        self.trunk.eval()
        return self

    def forward(self, images: Mapping[str, Tensor]) -> Tensor:
        """As :meth:`ConvEncoders.forward`."""
        trunk = self.trunk
        patches = torch.stack(
            [
                self.embed[m]((images[m].expand(-1, 3, -1, -1) - self.mean) / self.std)
                for m in MODALITIES
            ]
        )  # (3, B, N, D)
        count, batch = patches.shape[:2]
        tokens = trunk.norm_pre(trunk.patch_drop(trunk._pos_embed(patches.flatten(0, 1))))
        for block, adapter in zip(trunk.blocks, self.adapters, strict=True):
            tokens = block(tokens)  # (3 B, N + 1, D)
            wide = tokens.view(count, -1, self.out_features)
            tokens = adapter(wide).view_as(tokens)
        pooled: Tensor = trunk.norm(tokens)[:, trunk.num_prefix_tokens :].mean(dim=1)
        return pooled.view(count, batch, -1).transpose(0, 1)


def build_encoders(
    name: str, pretrained: bool, size: int, options: Mapping[str, Any] | None
) -> ConvEncoders | SharedViT:
    """The encoders by name: "cnn4", or a vision transformer of timm."""
    if name == CNN:
        return ConvEncoders(**dict(options or {}))
    return SharedViT(name, pretrained, size, options=options)
