"""DegBins at 640 x 480 beside what a user would pick instead, in one run.

    python -m benchmarks.speed.degbins

Prints milliseconds an image (median), the share of the head in the forward pass, and the cost of a
training step against the additive baseline. OpenCV's filters need the extra ``peers``.
"""

import sys
from collections.abc import Callable

import torch

from benchmarks.speed.timing import in_turns
from zoo import DegBins
from zoo.degbins.classical import guided_filter
from zoo.layers.resample import bicubic

SIZE, SCALE, ROUNDS = (480, 640), 8, 9


def filters(guide: torch.Tensor, d_up: torch.Tensor) -> dict[str, Callable[[], object]]:
    """OpenCV's guided, joint bilateral and fast global filters; none without OpenCV."""
    try:
        from cv2 import ximgproc
    except ImportError:
        return {}
    image = (255 * guide[0].permute(1, 2, 0)).byte().numpy()
    depth = d_up[0, 0].numpy()
    return {
        "OpenCV guided filter": lambda: ximgproc.guidedFilter(image, depth, 8, 1e-4 * 255**2),
        "OpenCV joint bilateral": lambda: ximgproc.jointBilateralFilter(
            image.astype("float32"), depth, 17, 10.0, 8.0
        ),
        "OpenCV fast global smoother": lambda: ximgproc.fastGlobalSmootherFilter(
            image, depth, 100.0, 10.0
        ),
    }


def training_step(head: str) -> Callable[[], object]:
    """Forward and backward of 8 crops of 64 pixels."""
    network = DegBins(head=head).network
    d_up, guide = torch.rand(8, 1, 64, 64), torch.rand(8, 3, 64, 64)

    def step() -> None:
        network.zero_grad()
        sum(network(d_up, guide).residuals).square().mean().backward()

    return step


def main() -> None:
    """Measures and prints."""
    torch.manual_seed(0)
    guide = torch.rand(1, 3, *SIZE)
    lr_depth = 1 + torch.rand(1, 1, SIZE[0] // SCALE, SIZE[1] // SCALE)
    d_up = bicubic(lr_depth, SIZE)
    model = DegBins().eval()
    network = model.network
    with torch.inference_mode():
        features = network.backbone(d_up, guide)
        found = in_turns(
            {
                "DegBins": lambda: model(lr_depth, guide),
                "its backbone": lambda: network.backbone(d_up, guide),
                "its head": lambda: network.head(features, d_up, False),
                "bicubic": lambda: bicubic(lr_depth, SIZE),
                "guided filter (torch)": lambda: guided_filter(guide, d_up),
                **filters(guide, d_up),
            },
            ROUNDS,
        )
    for name, seconds in found.items():
        sys.stdout.write(f"{name:<28}{1e3 * seconds:8.1f} ms\n")
    both = found["its head"] + found["its backbone"]
    sys.stdout.write(f"head / (head + backbone)    {found['its head'] / both:8.2f}\n")
    steps = in_turns({head: training_step(head) for head in ("bins", "additive")}, ROUNDS)
    sys.stdout.write(f"training, bins / additive   {steps['bins'] / steps['additive']:8.2f}\n")
    sys.stdout.write(f"parameters                  {sum(p.numel() for p in model.parameters())}\n")


if __name__ == "__main__":
    main()
