"""The method: stages, fidelity, sizes of photographs, the baseline, real-scale parts offline."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning import Trainer, seed_everything
from torch.nn import functional as F

from zoo import HDRBracket
from zoo.datamodules import FocalStackDataModule, HDRDataModule
from zoo.display import decode, encode
from zoo.errors import ZooError
from zoo.hdr_bracket.bracket import well_exposed
from zoo.hdr_bracket.cache import BracketCache
from zoo.hdr_bracket.codecs import KNOWN_SPREAD, DifferenceCodec
from zoo.hdr_files import read_radiance

ROOT = Path(__file__).parents[2]
TINY = {"evs": [-2.0, 0.0, 2.0], "steps": 2, "fusion_width": 4, "cache_size": 4}
DATA = {"crop": 16, "view": 24, "views": 1, "samples_per_epoch": 16, "batch_size": 4}
SILENT = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
REDUCED = {
    "unet": {
        "block_out_channels": [32, 32, 32, 32],
        "layers_per_block": 1,
        "num_attention_heads": [1, 1, 1, 1],
        "cross_attention_dim": 16,
        "addition_time_embed_dim": 8,
        "projection_class_embeddings_input_dim": 24,
    },
    "vae": {"block_out_channels": [32, 32, 32, 32], "layers_per_block": 1},
    "image_encoder": {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "patch_size": 8,
        "projection_dim": 16,
        "image_size": 32,
    },
}


def photo(height=20, width=30, batch=1):
    generator = torch.Generator().manual_seed(0)
    smooth = torch.rand(batch, 3, 4, 4, generator=generator) * 1.5
    image = torch.nn.functional.interpolate(smooth, (height, width), mode="bicubic")
    return (image.clamp(0, 1) * 255).round() / 255


def disturbed(**changes):
    """A model whose generator makes something: zero-initialised, it gives the condition back."""
    seed_everything(0)
    model = HDRBracket(**{**TINY, **changes}).eval()
    conv = model.generator.unet.conv_out
    torch.nn.init.normal_(conv.weight, std=0.2)
    return model


def test_untrained_it_is_the_photograph_linearised():
    """F = 0 at first, so the frames are the re-exposed input, plus the last noise level's trace."""
    image = photo()
    model = HDRBracket(**TINY, fidelity=1.0).eval()
    with torch.inference_mode():
        out = model(image)
    exposed = model.reference(image)
    known = ((image > 0.1) & (image < 0.9)).all(dim=1)
    assert torch.allclose(out["frames"][:, 2][:, 0][known], exposed[:, 2][:, 0][known], atol=1e-4)
    error = (out["hdr"] - decode(image)).abs()[known[:, None].expand_as(image)]
    assert error.max() < 1e-3


def test_fidelity_keeps_what_is_well_exposed():
    """Re-exposed at 0 EV, the result is the input again where that is not clipped (40 dB)."""
    image = photo(48, 48)
    psnr = {}
    for fidelity in (0.0, 1.0):
        with torch.inference_mode():
            hdr = disturbed(fidelity=fidelity)(image)["hdr"]
        kept = well_exposed(image) == 1
        error = (encode(hdr) - image).square()[kept.expand_as(image)].mean()
        psnr[fidelity] = -10 * float(error.log10())
    assert psnr[1.0] > psnr[0.0] + 3
    assert psnr[1.0] > 40


def test_frames_differ_by_seed_and_not_by_batch():
    model = disturbed(fidelity=0.0)
    with torch.inference_mode():
        first, again, other = (model(photo(), seed=s)["hdr"] for s in (0, 0, 1))
        pair = model(torch.cat([photo(), photo()]), seed=0)["hdr"]
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, atol=1e-3)
    assert torch.allclose(pair[:1], first, atol=1e-5)


@pytest.mark.parametrize("size", [(1, 1), (3, 50), (17, 16), (40, 24)])
def test_photographs_of_any_size(size):
    model = disturbed(max_side=32)
    image = (photo(*size)[0].permute(1, 2, 0) * 255).byte().numpy()
    result = model.predict(image)
    assert result.hdr.shape == (*size, 3)
    assert result.hdr.dtype == np.float32
    assert result.frames.shape == (3, *size, 3)
    assert result.weights.sum(axis=0) == pytest.approx(np.ones(size), abs=1e-5)
    assert np.isfinite(result.hdr).all()
    assert (result.hdr >= 0).all()


def test_large_photographs_keep_their_detail():
    """Above max_side the gain is enlarged, not the picture: fine texture stays the input's."""
    image = photo(64, 64) * 0.5 + 0.2
    image[..., ::2] += 0.1
    with torch.inference_mode():
        hdr = HDRBracket(**TINY, max_side=32).eval()(image)["hdr"]
    assert torch.allclose(hdr, decode(image), rtol=0.1, atol=0.01)


def test_tiles_agree_where_attention_sees_the_same():
    model = disturbed()
    whole, tiled = (model(photo(64, 64))["frames"] for model.generator.tile in (64, 8))
    assert whole.shape == tiled.shape
    assert tiled.isfinite().all()


def test_guidance_changes_the_frames_and_one_is_plain():
    plain, guided = disturbed(fidelity=0.0), disturbed(fidelity=0.0, guidance=2.0)
    with torch.inference_mode():
        assert not torch.allclose(plain(photo())["frames"], guided(photo())["frames"], atol=1e-3)


@pytest.mark.parametrize("evs", [None, [-2.0, 0.0, 2.0]])
def test_difference_codec_is_exact(evs):
    codec = DifferenceCodec(evs)
    frames, reference = torch.rand(2, 3, 3, 8, 12), torch.rand(2, 3, 3, 8, 12)
    latents = codec.encode(frames, reference)
    assert latents.shape == (2, 3, 48, 2, 3)
    assert torch.allclose(codec.decode(latents, reference), frames, atol=1e-6)


def test_condition_says_what_the_input_lost():
    """By frame and colour: a darker one lacks what is clipped, a brighter one what is dark."""
    image = torch.full((1, 3, 4, 4), 0.5)
    image[0, 2, 0, 0], image[0, 1, 3, 3] = 1.0, 0.0
    model = HDRBracket(**TINY)
    codec = model.generator.codec
    seen = F.pixel_shuffle(codec.condition(model.reference(image)), 4)[0]  # (3, 9, 4, 4)
    assert seen.shape[1] * 16 == codec.condition_channels == 144
    frames, lost, near_white = seen[:, :3], seen[:, 3:6], seen[:, 6:]
    assert frames[:2, 2, 0, 0] == pytest.approx([1.0, 1.0])  # clipped at any exposure
    expected = torch.zeros_like(lost)
    expected[:2, 2, 0, 0] = 1
    expected[2, 1, 3, 3] = 1
    assert torch.equal(lost, expected)
    assert torch.equal(near_white[0], near_white[2])
    assert near_white[0, 2, 0, 0] == pytest.approx(1)
    assert near_white[0, 0, 0, 0] == -1


def test_huber_loss_counts_a_lamp_by_size_not_square():
    """Four times the error: 16 times the squared loss, four times the pseudo-Huber one."""
    model = HDRBracket(**TINY)
    image = torch.full((1, 3, 8, 8), 0.5)
    reference, lost = model.reference(image), torch.zeros(1, 1, 8, 8)
    model.generator.unet.forward = lambda z, *rest, **options: (torch.zeros_like(z[:, :, :48]),)
    growth = {}
    for huber in (None, 0.01):
        model.generator.huber = huber
        losses = []
        for lacking in (10.0, 40.0):  # deviations, far above the noise that F = 0 leaves
            torch.manual_seed(0)
            frames = reference + lacking * KNOWN_SPREAD
            losses.append(model.generator.loss(frames, image, reference, lost, 0.0).item())
        growth[huber] = losses[1] / losses[0]
    assert growth[None] == pytest.approx(16, rel=0.05)
    assert growth[0.01] == pytest.approx(4, rel=0.05)


def test_saves_what_others_open(tmp_path):
    result = disturbed().predict((photo()[0].permute(1, 2, 0) * 255).byte().numpy())
    half = result.hdr.astype(np.float16).astype(np.float32)
    assert np.array_equal(read_radiance(result.save(tmp_path / "a.exr")), half)
    assert np.abs(read_radiance(result.save(tmp_path / "a.hdr")) - result.hdr).max() < 0.05
    files = result.save_bracket(tmp_path / "bracket", "a")
    assert [f.name for f in files[:2]] == ["a_ev-2.png", "a_weight_ev-2.png"]
    assert len(files) == 6
    assert result.scale_to_nits(200.0) == pytest.approx(result.hdr * 200)
    assert result.save(tmp_path / "a.png").stat().st_size > 0
    with pytest.raises(ZooError, match=r"a\.gif"):
        result.save(tmp_path / "a.gif")


def test_both_stages_in_one_fit():
    """Each stage moves its own part alone; sampled brackets are cached once."""
    seed_everything(0)
    model = HDRBracket(**TINY, generator_steps=2, fusion_steps=3)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    trainer = Trainer(max_epochs=5, limit_val_batches=1, **SILENT)
    trainer.fit(model, HDRDataModule(**DATA))
    assert trainer.global_step == 5
    assert model.stage.name == "fusion"
    assert model.cache is None
    moved = {
        k.split(".")[0] for k, v in model.state_dict().items() if not torch.equal(v, before[k])
    }
    assert moved == {"generator", "fusion"}


def test_cache_is_a_function_of_the_seed_alone():
    data = HDRDataModule(**DATA)
    data.setup("fit")
    drawn = []
    for _ in range(2):
        torch.rand(7)  # whatever happened before
        cache = BracketCache(6)
        loader = data.train_dataloader()
        assert cache.fill(loader, lambda batch, number: batch["image"][:, None] + number, 5, 0, 1)
        drawn.append({k: np.array(v) for k, v in cache.arrays.items()})
    assert all(np.array_equal(drawn[0][k], drawn[1][k]) for k in drawn[0])
    assert not np.array_equal(drawn[0]["target"][0], drawn[0]["target"][4])
    assert len(drawn[0]["frames"]) == 6
    assert not cache.fill([], lambda batch, number: batch["image"], 0, 0, 1)


@pytest.mark.parametrize(
    "changes", [{"baseline": "direct"}, {"fusion": "triangle"}, {"condition": "repeat"}]
)
def test_baselines_and_variants_train(changes):
    seed_everything(0)
    model = HDRBracket(**{**TINY, **changes}, generator_steps=2, fusion_steps=1)
    trainer = Trainer(max_epochs=2, limit_val_batches=1, limit_test_batches=1, **SILENT)
    trainer.fit(model, HDRDataModule(**DATA))
    (metrics,) = trainer.test(model, HDRDataModule(**DATA), verbose=False)
    assert np.isfinite(list(metrics.values())).all()
    assert "test_pu_psnr_input" in metrics
    assert ("test_pu_psnr_true_triangle" in metrics) == (changes == {"condition": "repeat"})


def test_focal_stacks_by_the_same_code():
    seed_everything(0)
    options = {**TINY, "task": "all_in_focus", "focus_frames": 3, "condition": "repeat"}
    del options["evs"]
    model = HDRBracket(**options, generator_steps=2, fusion_steps=2)
    data = {"focus_frames": 3, "crop": 32, "view": 32, "samples_per_epoch": 8, "batch_size": 4}
    trainer = Trainer(max_epochs=3, limit_val_batches=1, limit_test_batches=1, **SILENT)
    trainer.fit(model, FocalStackDataModule(**data))
    (metrics,) = trainer.test(model, FocalStackDataModule(**data), verbose=False)
    assert {"test_psnr", "test_psnr_input", "test_psnr_mean", "test_sharpness"} <= set(metrics)
    result = model.predict(np.zeros((20, 20, 3), np.uint8))
    assert result.labels == ("focus0", "focus1", "focus2")
    with pytest.raises(ZooError, match="focal stacks of 3 frames"):
        model.true_frames({"frames": torch.zeros(1, 5, 3, 8, 8)})


@pytest.mark.filterwarnings("ignore:Training ended at step 1")
@pytest.mark.parametrize("train", ["lora", "temporal", "full"])
def test_real_scale_parts_build_and_train_offline(train):
    """Reduced random parts of the published layout: what trains moves, and the rest stays."""
    seed_everything(0)
    model = HDRBracket(
        evs=[-2.0, 0.0, 2.0],
        backbone="org/video",
        backbone_sizes=REDUCED,
        pretrained=False,
        condition="repeat",
        train=train,
        lora_rank=2,
        checkpointing=True,
        steps=1,
        fusion_width=4,
    )
    trainable = {n for n, p in model.named_parameters() if p.requires_grad}
    assert not any(n.startswith(("generator.codec", "generator.embedder")) for n in trainable)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    data = HDRDataModule(**{**DATA, "crop": 64, "view": 64, "batch_size": 1})
    Trainer(max_steps=1, limit_val_batches=0, **SILENT).fit(model, data)
    moved = {k for k, v in model.state_dict().items() if not torch.equal(v, before[k])}
    assert moved
    assert all(k.startswith("generator.unet") for k in moved)
    if train == "lora":
        assert all(".lora_" in k for k in moved)
    if train == "temporal":
        assert all("temporal" in k or ".attn" in k or "time_" in k for k in moved)
    with torch.inference_mode():
        out = model.eval()(photo(70, 60))
    assert out["hdr"].shape == (1, 3, 70, 60)
    assert out["frames"].min() >= 0


def test_frozen_pretrained_parts_are_in_no_checkpoint():
    from zoo.hdr_bracket.backbone import add_lora, build_svd, frozen_leaves, trainable_modules

    fetch = dict.fromkeys(("unet", "vae", "image_encoder"), False)
    unet = build_svd("org/video", None, REDUCED, fetch, 2.0, 64).unet
    add_lora(unet, 2)
    trained = trainable_modules(unet, "lora")
    leaves = tuple(f"{leaf}." for leaf in frozen_leaves(unet, trained))
    kept = {name for name, _ in unet.named_parameters() if not name.startswith(leaves)}
    assert kept == {name for name, _ in unet.named_parameters() if ".lora_" in name}


# diffusers 0.42 calls the hub's client as older ones were: https://github.com/huggingface/diffusers
@pytest.mark.filterwarnings("ignore:.*local_dir_use_symlinks")
@pytest.mark.filterwarnings("ignore:.*proxies")
def test_a_backbone_that_cannot_be_fetched_is_one_sentence(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ZooError, match=r"The unet of org/none cannot be fetched"):
        HDRBracket(backbone="org/none", train="lora")


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"task": "hdrr"}, "Did you mean 'hdr'"),
        ({"evs": [1.0, 2.0]}, "lacks 0"),
        ({"fidelity": 2.0}, "must lie in 0..1"),
        ({"channels": [30, 64]}, "multiples of 32"),
        ({"train": "lora"}, "must not be 'tiny'"),
        ({"task": "all_in_focus", "baseline": "direct"}, "must be 'hdr'"),
        ({"fusion": "contrast"}, "contrast weighs focus"),
        ({"ema": 1.0}, "below 1"),
        ({"crf": "log"}, "curve"),
        ({"backbone": "a/b", "backbone_sizes": {"clip": {}}}, "names 'clip'"),
    ],
)
def test_mistakes_in_arguments(changes, pattern):
    with pytest.raises(ZooError, match=pattern):
        HDRBracket(**changes)


@pytest.mark.slow
def test_two_processes_train_both_stages(tmp_path):
    options = [
        "fit",
        "--config",
        str(ROOT / "zoo/hdr_bracket.yaml"),
        "--trainer.accelerator",
        "cpu",
    ]
    options += ["--trainer.devices", "2", "--trainer.strategy", "ddp", "--trainer.max_epochs", "3"]
    options += ["--trainer.limit_val_batches", "1", "--trainer.limit_test_batches", "1"]
    options += ["--trainer.enable_progress_bar", "false", "--trainer.log_every_n_steps", "1"]
    options += [
        t
        for k, v in {**TINY, "generator_steps": 2, "fusion_steps": 2}.items()
        for t in (f"--model.{k}", str(v))
    ]
    options += [t for k, v in DATA.items() for t in (f"--data.{k}", str(v))]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "zoo", *options],
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (run,) = tmp_path.glob("runs/hdr_bracket/version_0")
    assert json.loads((run / "metrics.json").read_text())["training"]["steps"] == 4
