"""What the method asks of an editor, and the small Flux that learns to be one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from diffusers import FluxTransformer2DModel
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.delta_adapter.adapter import Edit
from zoo.delta_adapter.attention import install
from zoo.delta_adapter.flow import resolution_shift
from zoo.errors import ZooError

Grid: TypeAlias = tuple[int, int]  # rows and columns of tokens

TINY = "tiny-flux"
TINY_CONFIG: Mapping[str, Any] = {
    "patch_size": 1,
    "in_channels": 96,
    "out_channels": 48,
    "num_layers": 2,
    "num_single_layers": 2,
    "attention_head_dim": 32,
    "num_attention_heads": 4,
    "joint_attention_dim": 64,
    "pooled_projection_dim": 64,
    "axes_dims_rope": (4, 14, 14),
    "guidance_embeds": False,
}
PATCH = 4  # pixels to a token of the tiny editor
SOONEST = 0.1  # t at which the tiny editor's division by t ends
# mu of the tiny editor: most of its training is at much noise, where the edit is decided. At little
# noise the loss weighs most, but the target is in plain sight and no instruction need be read.
SHIFT = 2.5
WORDS = 4  # tokens of an instruction
PREVIEW = 256  # pixels that the consistency loss decodes at


class Backbone(nn.Module):
    """A diffusion transformer that edits a context picture.

    Attributes:
        blocks: Number of blocks, each with an :class:`~zoo.delta_adapter.attention.EditProcessor`.
        heads: Of attention.
        head_dim: d, of each.
        factor: Pixels to a token, along each axis; sides are multiples of it.
    """

    factor: int

    def __init__(self, transformer: Any) -> None:
        super().__init__()
        self.transformer = transformer
        self.blocks = install(transformer)
        self.heads = int(transformer.config.num_attention_heads)
        self.head_dim = int(transformer.config.attention_head_dim)

    def grid(self, image: Tensor) -> Grid:
        """Rows and columns of the tokens of (B, 3, H, W)."""
        height, width = image.shape[-2:]
        if height % self.factor or width % self.factor:
            raise ZooError(
                f"The editor got {width}x{height} pixels: both must be multiples of {self.factor}."
            )
        return height // self.factor, width // self.factor

    def shift(self, tokens: int) -> float:
        """mu, of the times in training and sampling."""
        return resolution_shift(tokens)

    def unprompted(self, count: int) -> Tensor | None:
        """The ``instruction`` that says nothing, if there are any. Shape: (count,), long."""
        return None

    @abstractmethod
    def encode(self, image: Tensor) -> Tensor:
        """Pictures in 0..1 to tokens. Shape: (B, 3, H, W) to (B, N, C)."""

    @abstractmethod
    def decode(self, tokens: Tensor, grid: Grid, longest: int | None = None) -> Tensor:
        """The inverse, with gradient, not clipped; reduced to ``longest`` pixels if larger."""

    @abstractmethod
    def velocity(
        self,
        z: Tensor,
        t: Tensor,
        context: Tensor,
        grid: Grid,
        edit: Edit | None = None,
        instruction: Tensor | None = None,
    ) -> Tensor:
        """v_theta(z_t, t, x, E).

        Args:
            z: Noisy tokens. Shape: (B, N, C).
            t: In 0..1, 1 is noise. Shape: (B,).
            context: Tokens of the source or query. Shape: (B, N, C).
            grid: Of both.
            edit: ``None`` for the editor as it is.
            instruction: Of the tiny editor, in place of a prompt: number of the edit, 0 for "leave
                it as it is". Shape: (B,), long.

        Returns:
            float32. Shape: (B, N, C).
        """


class FluxEditor(Backbone):
    """What both Flux editors share: position ids, and the order of tokens."""

    prompt: Tensor
    pooled: Tensor

    def call(
        self,
        z: Tensor,
        t: Tensor,
        context: Tensor | None,
        grid: Grid,
        prompt: Tensor,
        edit: Edit | None,
        guidance: float | None = None,
    ) -> Tensor:
        """Runs the transformer, whose output of the target's tokens is (B, N, C) in float32.

        ``context`` are tokens that follow the target's; ``None`` if ``z`` has it in its channels.
        """
        weights = self.transformer.proj_out.weight
        count = z.shape[1]
        rows = torch.arange(grid[0], device=z.device).repeat_interleave(grid[1])
        columns = torch.arange(grid[1], device=z.device).repeat(grid[0])
        ids = torch.stack([torch.zeros_like(rows), rows, columns], dim=1)
        hidden = z
        if context is not None:  # its first id is 1, else it is ignored
            hidden = torch.cat([z, context], dim=1)
            ids = torch.cat([ids, ids + ids.new_tensor([1, 0, 0])])
        more = None if guidance is None else torch.full_like(t, guidance)
        # In the precision of its weights, whatever autocast does around it.
        with torch.autocast(z.device.type, enabled=False):
            out: Tensor = self.transformer(
                hidden_states=hidden.to(weights.dtype),
                encoder_hidden_states=prompt.to(weights.dtype),
                pooled_projections=self.pooled.expand(len(z), -1).to(weights.dtype),
                timestep=t,  # in 0..1: the model multiplies by 1000 itself
                img_ids=ids.to(weights.dtype),
                txt_ids=torch.zeros(prompt.shape[1], 3, device=z.device, dtype=weights.dtype),
                guidance=more,
                joint_attention_kwargs={
                    "edit": edit,
                    "targets": count,
                    "context": hidden.shape[1] - count,
                },
                return_dict=False,
            )[0]
        return out[:, :count].float()


class TinyFlux(FluxEditor):
    """A Flux of 1.8 M parameters on blocks of 4x4 pixels, which learns to edit by instruction.

    Its output f is what the edit adds to the context: z_1 = x + f, so v = (z_t - x - f) / t. A
    network that starts at "change nothing" has the edit to learn, not the copying of 48 channels;
    the division ends at t = 0.1, below which small errors of f would be large ones of v.

    The context is beside the noisy target in its channels, as in FLUX.1 Canny and Depth, not in
    tokens that follow, as in Kontext: each token would have to learn first to find the one at its
    own place, for which position codes on a grid of 8x8 are coarse. After 500 steps so the edits
    hardly showed (L1 0.074, the source as it is 0.087); after 200 this way it was 0.063.

    It is told 0, "leave it as it is", when it is used alone. An adapter that has to overrule that
    trains slowly, at some learning rates not at all. So the editor also learns to edit untold, as
    editors learn for guidance, and is told 0 the less the stronger the edit is: at strength 0 it is
    the editor alone, from 1 on the edit tokens alone say what to do.

    Args:
        instructions: Number of instructions, 0 among them.
    """

    factor = PATCH

    def __init__(self, instructions: int) -> None:
        super().__init__(FluxTransformer2DModel(**TINY_CONFIG))
        nn.init.zeros_(self.transformer.proj_out.weight)
        nn.init.zeros_(self.transformer.proj_out.bias)
        width = WORDS * int(TINY_CONFIG["joint_attention_dim"])
        self.instructions = nn.Embedding(instructions + 1, width)  # the last one: untold
        self.register_buffer(
            "pooled", torch.zeros(1, int(TINY_CONFIG["pooled_projection_dim"])), persistent=False
        )

    def encode(self, image: Tensor) -> Tensor:
        """Shape: (B, 3, H, W) to (B, H W / 16, 48), in -1..1."""
        return F.pixel_unshuffle(2 * image - 1, PATCH).flatten(2).transpose(1, 2)

    def shift(self, tokens: int) -> float:
        """The same at any size."""
        return SHIFT

    def unprompted(self, count: int) -> Tensor:
        """See :class:`Backbone`."""
        return torch.full(
            (count,), self.instructions.num_embeddings - 1, device=self.instructions.weight.device
        )

    def decode(self, tokens: Tensor, grid: Grid, longest: int | None = None) -> Tensor:
        """Shape: (B, N, 48) to (B, 3, H, W)."""
        cells = tokens.transpose(1, 2).reshape(len(tokens), -1, *grid)
        return (F.pixel_shuffle(cells, PATCH) + 1) / 2

    def velocity(
        self,
        z: Tensor,
        t: Tensor,
        context: Tensor,
        grid: Grid,
        edit: Edit | None = None,
        instruction: Tensor | None = None,
    ) -> Tensor:
        """See :class:`Backbone`."""
        prompt = self._prompt(len(z), edit, instruction).view(len(z), WORDS, -1)
        added = self.call(torch.cat([z, context], dim=-1), t, None, grid, prompt, edit)
        return (z - context - added) / t.clamp_min(SOONEST).view(-1, 1, 1)

    def _prompt(self, count: int, edit: Edit | None, instruction: Tensor | None) -> Tensor:
        """Shape: (count, words * channels)."""
        if instruction is not None:
            told: Tensor = self.instructions(instruction)
            return told
        leave, untold = (self.instructions.weight[row].expand(count, -1) for row in (0, -1))
        if edit is None:
            return leave
        strength = torch.as_tensor(edit.strength, dtype=leave.dtype, device=leave.device)
        return leave.lerp(untold, strength.clamp(0, 1).view(-1, 1))
