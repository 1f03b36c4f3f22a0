"""Delta-Adapter: what the adapter adds to the frozen editor, and what caching its edit saves.

    python -m benchmarks.speed.delta_adapter [--size 32] [--queries 8] [--rounds 5] [--flux]

Prints seconds (median, called in turns) for a batch of queries with the frozen editor alone, with
the edit cached as keys and values of each block, and with the exemplar encoded again in every step;
then the share of the adapter's parameters. ``--flux`` measures a FLUX of random weights and reduced
depth at 512 pixels instead, whose blocks are of the real width: for a GPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.speed.timing import in_turns
from zoo import DeltaAdapter
from zoo.delta_adapter.flow import draw_noise, euler

FLUX = {"transformer": {"num_layers": 2, "num_single_layers": 4}}


def recomputed(model: DeltaAdapter, query: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """The sampler with the edit computed anew in each step."""
    grid, context = model.editor.grid(query), model.editor.encode(query)

    def velocity(z: Tensor, t: Tensor) -> Tensor:
        edit = model.encode_edit(source, target).expand(len(z))
        return model.editor.velocity(z, t, context, grid, edit)

    noise = draw_noise(context, range(len(query)))
    return model.editor.decode(
        euler(velocity, noise, model.steps, model.editor.shift(noise.shape[1])), grid
    ).clamp(0, 1)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=32, help="side of the pictures in pixels")
    parser.add_argument("--queries", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--flux", action="store_true", help="blocks of FLUX's width, 512 pixels")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = options.size
    if options.flux:
        size = 512
        model = DeltaAdapter(
            backbone="flux-kontext",
            encoder="siglip2-so400m",
            base_sizes=FLUX,
            pretrained=False,
            num_edit_tokens=64,
            resampler_layers=4,
            adapter_dim=768,
            out_rank=256,
        )
    else:
        model = DeltaAdapter()
    model = model.eval().to(device)
    query = torch.rand(options.queries, 3, size, size, device=device)
    source, target = torch.rand(2, 1, 3, size, size, device=device).unbind(0)
    with torch.inference_mode(), torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        edit = model.encode_edit(source, target)
        candidates: dict[str, Callable[[], object]] = {
            "frozen editor alone": lambda: model.sample(query, None),
            "edit cached": lambda: model.sample(query, edit),
            "edit encoded once a call": lambda: model(query, source, target),
            "edit encoded in every step": lambda: recomputed(model, query, source, target),
        }
        found = in_turns(candidates, options.rounds)
    base = found["frozen editor alone"]
    for name, seconds in found.items():
        sys.stdout.write(f"{name:<30}{seconds:8.3f} s  x {seconds / base:.3f}\n")
    parts = {
        name: sum(p.numel() for p in getattr(model, name).parameters())
        for name in ("editor", "encoder", "adapter")
    }
    share = 100 * parts["adapter"] / parts["editor"]
    sys.stdout.write(f"parameters: {parts}, adapter {share:.1f} % of the editor\n")


if __name__ == "__main__":
    main()
