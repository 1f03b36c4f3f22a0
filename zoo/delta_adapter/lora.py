"""The baseline that a practitioner would try: fine-tune the editor on the one pair, with LoRA."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from zoo.delta_adapter.backbones import Backbone
from zoo.delta_adapter.delta import augment_pair
from zoo.delta_adapter.flow import draw, noisy
from zoo.delta_adapter.loss import flow_loss

RANK, LR = 8, 5e-3
BATCH = 4  # augmented copies of the pair in a step
TARGETS = ["to_q", "to_k", "to_v", "to_out.0", "proj_mlp", "proj_out", "ff.net.0.proj", "ff.net.2"]
NAME = "pair"


@contextmanager
def pair_lora(
    editor: Backbone, before: Tensor, after: Tensor, steps: int, seed: int = 0
) -> Iterator[None]:
    """Inside, the unprompted editor makes the edit of one pair, by low-rank updates trained on it.

    Args:
        editor: Frozen; it is as before afterwards.
        before: Shape: (1, 3, H, W), in 0..1.
        after: The same.
        steps: Of Adam, on :data:`BATCH` copies of the pair, cropped, flipped and turned alike.
        seed: Of the draws.
    """
    from peft import LoraConfig

    transformer = editor.transformer
    flags = [(p, p.requires_grad) for p in transformer.parameters()]
    devices = [before.device] if before.is_cuda else []
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.random.fork_rng(devices),
        ):
            torch.manual_seed(seed)
            config = LoraConfig(r=RANK, lora_alpha=RANK, target_modules=TARGETS)
            transformer.add_adapter(config, adapter_name=NAME)
            updates = [p for p in transformer.parameters() if p.requires_grad]
            optimizer = torch.optim.Adam(updates, lr=LR)
            pair = before.clone(), after.clone()  # tensors of inference mode take no gradient
            for _ in range(steps):
                optimizer.zero_grad()
                _loss(editor, *pair).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        yield
    finally:
        transformer.unload_lora()
        for parameter, trainable in flags:
            parameter.requires_grad_(trainable)


def _loss(editor: Backbone, before: Tensor, after: Tensor) -> Tensor:
    source, target = augment_pair(*(x.expand(BATCH, -1, -1, -1) for x in (before, after)))
    grid = editor.grid(source)
    context, clean = editor.encode(source), editor.encode(target)
    noise, t = draw(clean, editor.shift(clean.shape[1]))
    velocity = editor.velocity(
        noisy(clean, noise, t), t, context, grid, instruction=editor.unprompted(len(source))
    )
    return flow_loss(velocity, clean, noise)
