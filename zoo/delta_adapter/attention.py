"""Decoupled cross-attention to the edit tokens, in every block of a diffusion transformer.

``FluxIPAdapterAttnProcessor`` of diffusers covers double blocks only. This processor wraps the one
that a block has, so it serves double and single blocks of Flux and those of Qwen-Image alike.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from zoo.delta_adapter.adapter import Edit


class EditProcessor:
    """h <- Attn(h) + s * W_o' softmax(Q K'^T / sqrt(d)) V', on the tokens of the noisy target only.

    Q is the block's own, after its norm and before its rotary embedding: edit tokens have no place.
    In a single block the sum is formed before the block's joint output projection.

    Args:
        attn: The block's attention; the processor takes the place of its own.
        block: Number of the block in the :class:`~zoo.delta_adapter.adapter.Edit`.
    """

    def __init__(self, attn: Any, block: int) -> None:
        self.base, self.block = attn.processor, block
        self.query: Tensor | None = None
        attn.norm_q.register_forward_hook(self._keep)  # saves computing the queries twice
        attn.set_processor(self)

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        image_rotary_emb: Any = None,
        encoder_hidden_states_mask: Tensor | None = None,
        edit: Edit | None = None,
        targets: int = 0,
        context: int = 0,
    ) -> Any:
        """Runs the block's attention, and adds the edit's.

        Args:
            attn: The block's attention.
            hidden_states: Tokens: target, context; in a single block text, target, context. Shape:
                (B, N, C).
            encoder_hidden_states: Text tokens of a double block. Shape: (B, T, C).
            attention_mask: As the block hands it on.
            image_rotary_emb: The same.
            encoder_hidden_states_mask: The same.
            edit: ``None`` for the frozen editor as it is.
            targets: Number of the noisy target's tokens.
            context: Number of tokens after them, of a single block.

        Returns:
            What the block's own processor returns.
        """
        given = {
            "encoder_hidden_states": encoder_hidden_states,
            "attention_mask": attention_mask,
            "image_rotary_emb": image_rotary_emb,
            "encoder_hidden_states_mask": encoder_hidden_states_mask,
        }
        given = {name: value for name, value in given.items() if value is not None}
        out = self.base(attn, hidden_states, **given)
        query, self.query = self.query, None
        if edit is None or query is None:
            return out
        double = encoder_hidden_states is not None
        image = out[0] if double else out
        first = 0 if double else image.shape[1] - targets - context
        seen = query[:, first : first + targets].transpose(1, 2)  # (B, heads, targets, d)
        keys, values = (x[self.block].to(seen.dtype) for x in (edit.keys, edit.values))
        read = F.scaled_dot_product_attention(seen, keys, values).transpose(1, 2).flatten(2)
        added = read @ edit.down[self.block].to(read.dtype) @ edit.up[self.block].to(read.dtype)
        strength = edit.strength
        if isinstance(strength, Tensor):
            strength = strength.view(-1, 1, 1).to(added.dtype)
        rest = image.shape[1] - first - targets
        image = image + F.pad(strength * added, (0, 0, first, rest))
        return (image, *out[1:]) if double else image

    def _keep(self, _module: nn.Module, _inputs: Any, output: Tensor) -> None:
        self.query = output


def install(transformer: Any) -> int:
    """Gives every block of a transformer of diffusers an :class:`EditProcessor`.

    Returns:
        The number of blocks.
    """
    singles = getattr(transformer, "single_transformer_blocks", [])
    blocks = [*transformer.transformer_blocks, *singles]
    for number, block in enumerate(blocks):
        EditProcessor(block.attn, number)
    return len(blocks)
