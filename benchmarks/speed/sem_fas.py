"""SEM-FAS beside concatenation, MC-dropout and an ensemble, in one run; and its head beside a ViT.

    python -m benchmarks.speed.sem_fas

Prints milliseconds a batch (median) and ratios side by side, and the head's share of a ViT-B/16
encoder in floating-point operations (multiply-adds count as two) and in time.
"""

from __future__ import annotations

import sys

import timm
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.speed.timing import in_turns
from zoo.face_files import MODALITIES
from zoo.sem_fas import EvidenceHead, FASConcat, SemFas
from zoo.sem_fas.baselines import MC_PASSES

BATCH, MEMBERS, ROUNDS = 64, 5, 9
VIT = "vit_base_patch16_224"
VIT_BATCH = 2  # of captures, so 6 images: enough for the time of an image on a CPU


def flops(call: object) -> int:
    """Floating-point operations of a call."""
    with FlopCounterMode(display=False) as counter:
        call()  # type: ignore[operator]
    return int(counter.get_total_flops())


def small() -> None:
    """The default encoders: latency of a batch of 64 captures."""
    model, concat = SemFas().eval(), FASConcat().eval()
    size = model.image_size
    images = {m: torch.rand(BATCH, 3 if m == "rgb" else 1, size, size) for m in MODALITIES}
    mask = torch.ones(BATCH, 3, dtype=torch.bool)

    def mc_full() -> None:
        for _ in range(MC_PASSES):
            concat.sample(concat.encode(images, mask), mask, passes=1)

    def ensemble() -> None:
        for _ in range(MEMBERS):
            concat.decide(concat.encode(images, mask), mask)

    with torch.inference_mode():
        features = model.encode(images, mask)
        found = in_turns(
            {
                "SEM-FAS": lambda: model.decide(model.encode(images, mask), mask),
                "its head": lambda: model.decide(features, mask),
                "concatenation": lambda: concat.decide(concat.encode(images, mask), mask),
                f"MC-dropout, {MC_PASSES} whole passes": mc_full,
                f"MC-dropout, {MC_PASSES} passes of the classifier": lambda: concat.sample(
                    concat.encode(images, mask), mask
                ),
                f"ensemble of {MEMBERS}": ensemble,
            },
            ROUNDS,
        )
    ours = found["SEM-FAS"]
    for name, seconds in found.items():
        sys.stdout.write(
            f"{name:<42}{1e3 * seconds:8.2f} ms   SEM-FAS / it {ours / seconds:6.2f}\n"
        )


def large() -> None:
    """The head at d=64, K=8 beside a ViT-B/16, on the same captures."""
    encoder = timm.create_model(VIT, pretrained=False, num_classes=0).eval()
    head = EvidenceHead(encoder.num_features, dim=64, heads=8, rank=8).eval()
    images = torch.rand(3 * VIT_BATCH, 3, 224, 224)
    features = torch.rand(VIT_BATCH, 3, encoder.num_features)
    mask = torch.ones(VIT_BATCH, 3, dtype=torch.bool)
    with torch.inference_mode():
        operations = [
            flops(call) for call in (lambda: head(features, mask), lambda: encoder(images))
        ]
        found = in_turns(
            {"head": lambda: head(features, mask), "encoder": lambda: encoder(images)}, ROUNDS
        )
    share, time = operations[0] / operations[1], found["head"] / found["encoder"]
    sys.stdout.write(
        f"{VIT}, {VIT_BATCH} captures: encoder {operations[1] / 1e9:.1f} GFLOP, head "
        f"{operations[0] / 1e9:.4f} GFLOP: {share:.3%} of the operations, {time:.2%} of the time\n"
    )
    wide = torch.rand(256, 3, encoder.num_features)
    all_there = torch.ones(256, 3, dtype=torch.bool)
    with torch.inference_mode():
        whole = in_turns({"head": lambda: head(wide, all_there)}, ROUNDS)["head"]
    per_batch = found["encoder"] / VIT_BATCH * 256
    sys.stdout.write(
        f"256 captures: head {1e3 * whole:.1f} ms, {whole / per_batch:.2%} of the encoder's time "
        f"at its rate for {VIT_BATCH}\n"
    )


def main() -> None:
    """Measures and prints."""
    torch.manual_seed(0)
    sys.stdout.write(f"{torch.get_num_threads()} threads\n")
    small()
    large()


if __name__ == "__main__":
    main()
