"""DeltaAdamW beside what a user would pick instead, in one run: step time, counted cost, memory.

    python -m benchmarks.speed.delta_momentum                      # the default config's model
    python -m benchmarks.speed.delta_momentum --width 256 --tokens 8192

Prints milliseconds of a training step (forward, backward, clipping, optimiser; medians, in turns),
the ratios to AdamW of the same kernel beside the counted overhead, how the time grows with tokens
and layers, and the peak memory: of the GPU if there is one, else of a process of its own for each.
"""

import argparse
import multiprocessing
import resource
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch.nn.utils import clip_grad_norm_

from benchmarks.speed.timing import in_turns
from zoo import DeltaLM
from zoo.delta_momentum.module import token_loss
from zoo.optim import DeltaAdamW, attach_delta_keys, delta_flops

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OPTIONS = {"lr": 1e-3, "betas": (0.9, 0.95), "weight_decay": 0.1}
FOREACH, FUSED = "AdamW, foreach", "AdamW, fused"
DELTA, DELTA_FUSED = "DeltaAdamW, foreach", "DeltaAdamW, fused"
WARM_UP = 2  # steps: states are made, then first used
HALF = 0.5  # of the tokens whose keys are taken, the default


def build(name: str, model: DeltaLM) -> torch.optim.Optimizer:
    """The optimiser of that name; keys are captured if it needs them."""
    parameters = list(model.parameters())
    if name in (DELTA, DELTA_FUSED):
        attach_delta_keys(model, key_fraction=HALF)
        return DeltaAdamW(parameters, **OPTIONS, fused=name == DELTA_FUSED)  # type: ignore[arg-type]
    if name in (FOREACH, FUSED):
        kernel = {"fused": True} if name == FUSED else {"foreach": True}
        return torch.optim.AdamW(parameters, **OPTIONS, **kernel)  # type: ignore[arg-type]
    import pytorch_optimizer

    soap: torch.optim.Optimizer = pytorch_optimizer.SOAP(parameters, lr=1e-3)
    return soap


def candidates() -> list[str]:
    """What is compared: SOAP too, if its package is there."""
    try:
        import pytorch_optimizer  # noqa: F401
    except ImportError:
        return [FOREACH, FUSED, DELTA, DELTA_FUSED]
    return [FOREACH, FUSED, DELTA, DELTA_FUSED, "SOAP (pytorch-optimizer)"]


def training_step(
    name: str, width: int | None, layers: int | None, batch: int
) -> tuple[Callable[[], None], DeltaLM]:
    """A step on the same random windows each time, and its model."""
    torch.manual_seed(0)
    hidden = None if width is None else 8 * width // 3
    model = DeltaLM(width=width, layers=layers, hidden=hidden).to(DEVICE).train()
    optimizer = build(name, model)
    shape = model.shape
    ids = torch.randint(shape.vocab_size, (batch, shape.context + 1), device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        token_loss(model(ids[:, :-1]), ids[:, 1:]).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    return step, model


def peak(name: str, width: int | None, layers: int | None, batch: int) -> float:
    """MiB at the peak of three steps, in this process."""
    step, _ = training_step(name, width, layers, batch)
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        step()
    if DEVICE == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--width", type=int, help="of the model; the default config's")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--tokens", type=int, default=2048, help="of a step")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--brief", action="store_true", help="no scaling, no memory")
    options = parser.parse_args()
    batch = options.tokens // 128
    made = {n: training_step(n, options.width, options.layers, batch) for n in candidates()}
    found = in_turns({n: step for n, (step, _) in made.items()}, options.rounds, WARM_UP)
    for name, seconds in found.items():
        sys.stdout.write(f"{name:<28}{1e3 * seconds:9.1f} ms a step\n")
    _, plain = made[FOREACH]
    count = delta_flops(plain, batch * plain.shape.context, key_fraction=HALF)
    output = 6 * batch * plain.shape.context * plain.network.lm_head.weight.numel()
    counted = (count.keys + count.memory) / (count.layers + output)
    for ours, theirs in ((DELTA, FOREACH), (DELTA_FUSED, FUSED)):
        sys.stdout.write(f"{ours} / {theirs}: {found[ours] / found[theirs]:.3f}\n")
    sys.stdout.write(f"counted, of linear layers  {1 + counted:.3f}; limit {1.1 + counted:.3f}\n")
    sys.stdout.write(f"Gram matrices              {count.gram_bytes / 2**20:.2f} MiB\n")
    if options.brief:
        return
    for what, sizes in (("tokens", (1, 2, 4)), ("layers", (2, 4, 8))):
        cells = []
        for size in sizes:
            layers, times = (size, 8) if what == "layers" else (options.layers, 8 * size)
            pair = {n: training_step(n, options.width, layers, times)[0] for n in (FOREACH, DELTA)}
            took = in_turns(pair, options.rounds, WARM_UP)
            label = size if what == "layers" else 128 * times
            cells.append(f"{label}: {1e3 * (took[DELTA] - took[FOREACH]):.2f} ms")
        sys.stdout.write(f"extra time by {what:<13}{', '.join(cells)}\n")
    with_pool = multiprocessing.get_context("spawn")
    for name in (FOREACH, DELTA):
        call = partial(peak, name, options.width, options.layers, batch)
        with with_pool.Pool(1) as pool:
            sys.stdout.write(f"peak memory, {name:<24}{pool.apply(call):8.0f} MiB\n")


if __name__ == "__main__":
    main()
