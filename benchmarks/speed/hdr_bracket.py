"""HDR bracket beside diffusers' own video pipeline, with equally small random parts and steps.

    python -m benchmarks.speed.hdr_bracket [--size 256] [--rounds 5] [--compile]

Prints seconds an image (median, called in turns) of the real-scale code path on reduced random
parts and of ``StableVideoDiffusionPipeline`` on the very same parts; then of the tiny network, of
its sampler and fusion, and of a photograph of 12 megapixels. On a GPU both run in bfloat16.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable

import torch
from diffusers import EulerDiscreteScheduler, StableVideoDiffusionPipeline
from torch import Tensor
from torchvision.transforms.functional import to_pil_image
from transformers import CLIPImageProcessor

from benchmarks.speed.timing import in_turns
from zoo import HDRBracket

STEPS, FRAMES = 4, 5
SMALL = {
    "unet": {
        "block_out_channels": [32, 64, 64, 64],
        "layers_per_block": 1,
        "num_attention_heads": [2, 4, 4, 4],
        "cross_attention_dim": 32,
        "addition_time_embed_dim": 16,
        "projection_class_embeddings_input_dim": 48,
    },
    "vae": {"block_out_channels": [32, 32, 64, 64], "layers_per_block": 1},
    "image_encoder": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "patch_size": 14,
        "projection_dim": 32,
        "image_size": 224,
    },
}


def svd_like() -> HDRBracket:
    """The real-scale method on reduced random parts."""
    model = HDRBracket(
        evs=[-4, -2, 0, 2, 4],
        backbone="small",
        backbone_sizes=SMALL,
        pretrained=False,
        condition="repeat",
        steps=STEPS,
        sigma_max=700.0,
        max_side=4096,
        tile=4096,
    )
    return model.eval()


def pipeline_of(model: HDRBracket) -> StableVideoDiffusionPipeline:
    """The pipeline of diffusers on the parts of ``model``."""
    pipeline = StableVideoDiffusionPipeline(
        vae=model.generator.codec.vae,
        image_encoder=model.generator.embedder.clip,
        unet=model.generator.unet,
        scheduler=EulerDiscreteScheduler(
            prediction_type="v_prediction",
            use_karras_sigmas=True,
            sigma_min=0.002,
            sigma_max=700.0,
            timestep_type="continuous",
            timestep_spacing="leading",
        ),
        feature_extractor=CLIPImageProcessor(),
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=256, help="side of the picture in pixels")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compile", action="store_true", help="torch.compile the tiny network")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    image = torch.rand(1, 3, options.size, options.size, device=device)
    small = svd_like().to(device)
    if device == "cuda":
        small.generator.to(torch.bfloat16)
    pipeline = pipeline_of(small)
    tiny = HDRBracket(steps=STEPS).eval().to(device)

    # The pipeline resizes pictures for the image encoder, but not tensors.
    picture = to_pil_image(image[0].cpu())

    def theirs() -> object:
        return pipeline(
            picture,
            height=options.size,
            width=options.size,
            num_frames=FRAMES,
            num_inference_steps=STEPS,
            min_guidance_scale=1.0,
            max_guidance_scale=1.0,
            decode_chunk_size=4,
            output_type="pt",
        )

    def ours(model: HDRBracket, photo: Tensor) -> Callable[[], object]:
        return lambda: model(photo.to(model.device))

    with torch.inference_mode(), torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        candidates: dict[str, Callable[[], object]] = {
            "ours, reduced video model": ours(small, image),
            "diffusers' pipeline, same parts": theirs,
            "ours, tiny": ours(tiny, image),
        }
        if options.compile:
            fast = HDRBracket(steps=STEPS).eval().to(device)
            fast.generator.unet = torch.compile(fast.generator.unet)
            candidates["ours, tiny, compiled"] = ours(fast, image)
        frames = tiny.bracket(image)
        candidates["its fusion alone"] = lambda: tiny.merge(frames, tiny.weights(frames))
        for name, seconds in in_turns(candidates, options.rounds).items():
            sys.stdout.write(f"{name:<34}{seconds:8.3f} s\n")
        large = torch.rand(1, 3, 3000, 4000)
        found = in_turns({"ours, tiny, 12 megapixels": ours(tiny, large)}, 1)
        for name, seconds in found.items():
            sys.stdout.write(f"{name:<34}{seconds:8.3f} s\n")
    sizes = [sum(p.numel() for p in m.generator.parameters()) for m in (small, tiny)]
    sys.stdout.write(f"parameters: {sizes[0]} (reduced video model), {sizes[1]} (tiny)\n")


if __name__ == "__main__":
    main()
