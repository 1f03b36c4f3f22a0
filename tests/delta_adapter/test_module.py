"""The method: freezing, stages and their cache, leak, adaptation, baselines, real parts offline."""

from pathlib import Path

import numpy as np
import pytest
import torch
from lightning import Trainer, seed_everything
from PIL import Image
from torch.utils.data import DataLoader, default_collate

from zoo import DeltaAdapter
from zoo.datamodules import EditPairsDataModule
from zoo.errors import ZooError

ROOT = Path(__file__).parents[2]
TINY = {
    "num_edit_tokens": 2,
    "resampler_layers": 1,
    "adapter_dim": 16,
    "out_rank": 4,
    "steps": 2,
    "encoder_steps": 1,
    "editor_steps": 2,
    "adapter_steps": 2,
}
DATA = {"pairs": 32, "items": 2, "batch_size": 4, "eval_batch_size": 3}
SILENT = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "limit_val_batches": 0,
}
FLUX = {
    "transformer": {
        "num_layers": 1,
        "num_single_layers": 1,
        "attention_head_dim": 16,
        "num_attention_heads": 2,
        "joint_attention_dim": 16,
        "pooled_projection_dim": 8,
        "axes_dims_rope": [4, 6, 6],
    },
    "vae": {
        "block_out_channels": [8, 8],
        "down_block_types": ["DownEncoderBlock2D"] * 2,
        "up_block_types": ["UpDecoderBlock2D"] * 2,
        "layers_per_block": 1,
        "norm_num_groups": 4,
    },
}
QWEN = {
    "transformer": {
        "num_layers": 1,
        "attention_head_dim": 16,
        "num_attention_heads": 2,
        "joint_attention_dim": 16,
        "axes_dims_rope": [4, 6, 6],
    },
    "vae": {"base_dim": 4, "num_res_blocks": 1},
}
SIGLIP = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}


@pytest.fixture(autouse=True)
def seeded():
    seed_everything(0)


def batch(count=4, **changes):
    data = EditPairsDataModule(**{**DATA, **changes})
    data.setup("fit")
    return default_collate(data.datasets["train"].__getitems__(list(range(count))))


def trained(model=None, stage=2):
    """A model in a training stage, without a trainer, whose adapter does something."""
    from zoo.stages import train_only

    model = model or DeltaAdapter(**TINY)
    model.stage_index = stage
    train_only(model, model.stage.train)
    torch.nn.init.normal_(model.adapter.up, std=0.3)
    torch.nn.init.normal_(model.editor.transformer.proj_out.weight, std=0.02)
    model.log = lambda *_, **__: None
    return model


def weights(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(one, two):
    return all(torch.equal(one[name], value) for name, value in two.items())


def test_the_adapter_stage_changes_nothing_else():
    """Optimiser, weight decay and all: encoder, judge and editor are bit for bit as they were."""
    model, frozen = DeltaAdapter(**TINY), {}
    train_step = model.training_step

    def remember(batch, batch_idx):
        if model.stage.name == "adapter" and not frozen:
            frozen.update({k: weights(getattr(model, k)) for k in ("encoder", "judge", "editor")})
        return train_step(batch, batch_idx)

    model.training_step = remember
    start = weights(model)
    Trainer(max_epochs=1, **SILENT).fit(model, EditPairsDataModule(**DATA))
    assert frozen
    for name, before in frozen.items():
        assert same(before, weights(getattr(model, name))), name
        assert not same(
            before, {k[len(name) + 1 :]: v for k, v in start.items() if k.startswith(f"{name}.")}
        )
    assert not torch.equal(start["adapter.up"], model.adapter.up)


def test_gradient_of_the_consistency_loss_reaches_every_part_of_the_adapter():
    """Through the decoder, the frozen encoder and the frozen editor."""
    model = trained(
        DeltaAdapter(**TINY, consistency_weight=1.0, consistency_t_max=1.0, null_prob=0.0)
    )
    torch.nn.init.constant_(model.adapter.project.gate, 0.1)
    from zoo.delta_adapter import module

    flow = module.flow_loss
    module.flow_loss = lambda v, *_: 0 * v.sum()
    try:
        model.training_step(batch(), 0).backward()
    finally:
        module.flow_loss = flow
    for name, parameter in model.adapter.named_parameters():
        if name != "null":
            assert parameter.grad.abs().sum() > 0, name
    assert all(p.grad is None for p in model.editor.parameters())
    assert all(p.grad is None for p in model.encoder.parameters())


def test_the_target_is_seen_through_its_delta_only(monkeypatch):
    """At t = 1 z is noise; then, with the delta held, permuted pixels of y change nothing."""
    from zoo.delta_adapter import module

    model = trained(DeltaAdapter(**TINY, consistency_weight=0.0, null_prob=0.0))
    given, features, outputs = batch(), [], []
    monkeypatch.setattr(module, "draw", lambda x, _: (torch.ones_like(x), torch.ones(len(x))))
    monkeypatch.setattr(module, "flow_loss", lambda v, *_: outputs.append(v) or v.sum())
    encode = model.encoder.forward

    def held(image):
        if len(features) < 2:
            features.append(encode(image))
            return features[-1]
        held.calls += 1
        return features[(held.calls - 1) % 2]

    held.calls = 0
    monkeypatch.setattr(model.encoder, "forward", held)
    for target in (given["target"], given["target"][..., torch.randperm(32)]):
        torch.manual_seed(5)
        model.adapter_loss({**given, "target": target})
    assert torch.equal(outputs[0], outputs[1])
    features.clear()
    torch.manual_seed(5)
    model.adapter_loss({**given, "target": given["target"].flip(1)})
    assert not torch.allclose(outputs[0], outputs[2], atol=1e-4)


def test_cached_edit_equals_recomputation_and_serves_many_queries():
    model = trained().eval()
    query, source, target = torch.rand(3, 3, 3, 32, 32).unbind(0)
    with torch.no_grad():
        edit = model.encode_edit(source[:1], target[:1])
        cached = model.sample(query, edit, seed=3)
        again = model(
            query, source[:1].expand(3, -1, -1, -1), target[:1].expand(3, -1, -1, -1), seed=3
        )
        assert torch.allclose(cached, again, atol=1e-6)
        stronger = model.sample(query, edit.of(1.5), seed=3)
        assert torch.equal(stronger, model(query, source[:1], target[:1], strength=1.5, seed=3))
        assert not torch.allclose(stronger, cached, atol=1e-4)
        off = model.sample(query, edit.of(0.0), seed=3)
        assert torch.equal(off, model.sample(query, None, seed=3))


def test_untrained_the_model_is_the_frozen_editor_bit_for_bit():
    model = DeltaAdapter(**TINY).eval()
    torch.nn.init.normal_(model.editor.transformer.proj_out.weight, std=0.02)
    query, source, target = torch.rand(3, 2, 3, 32, 32).unbind(0)
    with torch.no_grad():
        untold = model.editor.unprompted(2)
        alone = model.sample(query, None, instruction=untold)
        assert torch.equal(model(query, source, target), alone)


def test_guidance_moves_away_from_the_null_edit():
    plain, guided = trained().eval(), trained(DeltaAdapter(**TINY, guidance=2.0)).eval()
    guided.load_state_dict(plain.state_dict())
    pictures = torch.rand(3, 1, 3, 32, 32)
    with torch.no_grad():
        assert not torch.allclose(plain(*pictures), guided(*pictures), atol=1e-5)
        guided.guidance = 1.0
        assert torch.equal(plain(*pictures), guided(*pictures))


@pytest.mark.parametrize("condition", ["target", "pair"])
def test_baseline_conditions_train(condition):
    model = trained(DeltaAdapter(**TINY, condition=condition))
    model.training_step(batch(), 0).backward()
    assert model.adapter.positions.shape[0] == (32 if condition == "pair" else 16)
    assert model.adapter.to_k.weight.grad.abs().sum() > 0


def test_switches_of_leak_control():
    """Without any of them, and without noise, the pair's tokens are those of inference."""
    given = batch()
    model = trained(DeltaAdapter(**TINY, delta_aug=False, token_drop=0.0))
    pair = [model.encoder(given[k]) for k in ("source", "target")]
    from zoo.delta_adapter.delta import semantic_delta

    expected = model.adapter.tokens(semantic_delta(*pair))
    assert torch.allclose(model._training_tokens(given), expected, atol=1e-6)
    for changes in (
        {"delta_aug": True, "token_drop": 0.0},
        {"delta_aug": False, "token_drop": 0.5},
    ):
        other = trained(DeltaAdapter(**TINY, **changes))
        other.load_state_dict(model.state_dict())
        assert not torch.allclose(other._training_tokens(given), expected, atol=1e-4)


def test_cross_pair_takes_the_delta_of_another_pair():
    given = batch(others=True)
    own = trained(DeltaAdapter(**TINY, delta_aug=False, token_drop=0.0))
    cross = trained(DeltaAdapter(**TINY, delta_aug=False, token_drop=0.0, cross_pair=1.0))
    cross.load_state_dict(own.state_dict())
    swapped = {**given, "source": given["before"], "target": given["after"]}
    assert torch.allclose(cross._training_tokens(given), own._training_tokens(swapped), atol=1e-6)
    with pytest.raises(ZooError, match=r"--data\.others true"):
        cross._training_tokens(batch())


def test_features_are_kept_on_disk_and_are_those_of_the_encoder(tmp_path):
    """As many calls of the encoder in a second epoch as there are new views; then none."""
    from zoo.delta_adapter.features import VIEWS, FeatureCache

    model, given = trained(DeltaAdapter(**TINY, delta_aug=False)), batch()
    computed = model._phi(given, given["source"], given["target"], False)
    model.features = FeatureCache(32, (16, 64), str(tmp_path))
    calls = []
    encode = model.encoder.forward
    model.encoder.forward = lambda x: calls.append(len(x)) or encode(x)
    first = model._phi(given, given["source"], given["target"], False)
    assert calls == [4, 4]
    again = model._phi(given, given["source"], given["target"], False)
    assert calls == [4, 4]
    for a, b, c in zip(computed, first, again, strict=True):
        assert torch.allclose(a, b, atol=5e-3)
        assert torch.equal(b, c)
    for _ in range(60):
        views = model._phi(given, given["source"], given["target"], True)
    assert sum(calls) == 8 + 2 * 4 * VIEWS
    assert not torch.allclose(views[0], first[0], atol=1e-2)
    model.features = None
    assert not list(tmp_path.iterdir())


def test_a_fit_with_cached_features_cleans_up(tmp_path):
    model = DeltaAdapter(**{**TINY, "adapter_steps": 5}, cache_features=str(tmp_path / "phi"))
    Trainer(max_epochs=1, **SILENT).fit(model, EditPairsDataModule(**DATA))
    assert model.features is None
    assert not list((tmp_path / "phi").iterdir())
    with pytest.raises(ZooError, match="cross_pair must be 0"):
        DeltaAdapter(**TINY, cache_features=str(tmp_path), cross_pair=0.5)


def test_stage_0_is_kept_for_other_runs(tmp_path, monkeypatch):
    options = {**TINY, "stage0_cache": str(tmp_path / "stage0")}

    def fit(**changes):
        seed_everything(0)
        model = DeltaAdapter(**{**options, **changes})
        Trainer(max_epochs=1, **SILENT).fit(model, EditPairsDataModule(**DATA))
        return model

    first = fit()
    (file,) = (tmp_path / "stage0").iterdir()
    second = fit(condition="target")
    assert len(list((tmp_path / "stage0").iterdir())) == 1
    assert [s.name for s in second.training_stages] == ["adapter"]
    for part in ("encoder", "judge", "editor"):
        assert same(weights(getattr(first, part)), weights(getattr(second, part)))
    assert first.trainer.global_step == 5
    assert second.trainer.global_step == 2
    fit(editor_steps=1)
    assert len(list((tmp_path / "stage0").iterdir())) == 2
    monkeypatch.setattr("zoo.delta_adapter.backbones.WORDS", 2)  # another editor
    assert len(fit().training_stages) == 3
    assert len(list((tmp_path / "stage0").iterdir())) == 3
    monkeypatch.undo()
    file.write_bytes(b"no tensors")
    with pytest.raises(ZooError, match="delete it"):
        fit()


def test_a_run_that_filled_the_cache_resumes_where_it_was(tmp_path):
    """Its checkpoint counts three stages, though a new run would start with the last one."""
    options = {**TINY, "stage0_cache": str(tmp_path / "stage0"), "adapter_steps": 4}
    trainer = Trainer(max_steps=4, max_epochs=1, **SILENT)
    trainer.fit(DeltaAdapter(**options), EditPairsDataModule(**DATA))
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    resumed = DeltaAdapter(**options)
    Trainer(max_epochs=2, **SILENT).fit(
        resumed, EditPairsDataModule(**DATA), ckpt_path=tmp_path / "half.ckpt"
    )
    assert resumed.trainer.global_step == 7
    assert resumed.stage.name == "adapter"
    assert len(resumed.training_stages) == 3


def pictures(folder, size=(40, 48)):
    rng = np.random.default_rng(0)
    before = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
    for name, pixels in {"before": before, "after": 255 - before, "query": before[::-1]}.items():
        Image.fromarray(np.ascontiguousarray(pixels)).save(folder / f"{name}.png")
    return {name: folder / f"{name}.png" for name in ("query", "before", "after")}


def test_adaptation_trains_the_resampler_on_the_exemplar_alone(tmp_path):
    model = trained().train()
    files = pictures(tmp_path)
    before = weights(model)
    flags = {n: p.requires_grad for n, p in model.named_parameters()}
    losses = model.adapt(files["before"], files["after"], steps=3)
    assert len(losses) == 3
    changed = {n for n, v in model.state_dict().items() if not torch.equal(v, before[n])}
    assert changed
    assert all(name.startswith("adapter.resampler.") for name in changed)
    assert flags == {n: p.requires_grad for n, p in model.named_parameters()}
    assert model.training


def test_photographs_of_any_size_keep_theirs(tmp_path):
    model, files = trained().eval(), pictures(tmp_path, (37, 90))
    out = model.edit(**files, strength=0.5, seed=1)
    assert out.size == (90, 37)
    assert np.array_equal(out, model.predict(**files, strength=0.5, seed=1))
    wide = torch.rand(1, 3, 20, 80)
    assert model._fit_size(wide).shape == (1, 3, 16, 64)


def test_bad_pictures_are_one_sentence(tmp_path):
    model, files = DeltaAdapter(**TINY).eval(), pictures(tmp_path)
    small = np.zeros((12, 40, 3), np.uint8)
    with pytest.raises(ZooError, match="40x12 pixels: expected at least 16"):
        model.predict(**{**files, "query": small})
    with pytest.raises(ZooError, match="48x40 and 40x40 pixels"):
        model.predict(**{**files, "after": np.zeros((40, 40, 3), np.uint8)})
    with pytest.warns(UserWarning, match="no edit in the exemplar"):
        model.predict(**{**files, "after": files["before"]})
    with pytest.raises(ZooError, match="does not exist"):
        model.predict(**{**files, "before": tmp_path / "no.png"})


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"backbone": "flux"}, "backbone='flux'"),
        ({"condition": "deltas"}, "Did you mean 'delta'"),
        ({"null_prob": 1.5}, "null_prob=1.5"),
        ({"backbone": "flux-kontext"}, "a real editor needs a real encoder"),
    ],
)
def test_wrong_options_are_one_sentence(options, pattern):
    with pytest.raises(ZooError, match=pattern):
        DeltaAdapter(**options)


def test_data_without_attributes_cannot_train_the_tiny_encoder():
    model = trained(stage=0)
    plain = {k: v for k, v in batch().items() if "attributes" not in k}
    with pytest.raises(ZooError, match="learns attributes"):
        model.training_step(plain, 0)


# -- real editors, offline ----------------------------------------------------------------------


def real(name, **changes):
    sizes = {"flux-kontext": FLUX, "qwen-edit": QWEN}[name]
    given = {"backbone": name, "encoder": "siglip2-so400m", "encoder_sizes": SIGLIP}
    options = {**TINY, **given, "base_sizes": sizes, "pretrained": False, "image_size": 32}
    return DeltaAdapter(**{**options, **changes})


@pytest.mark.parametrize("name", ["flux-kontext", "qwen-edit"])
def test_real_editors_with_random_parts_train_a_step_offline(name):
    model = real(name, consistency_t_max=1.0, checkpointing=True)
    assert [s.name for s in model.training_stages] == ["adapter"]
    before = weights(model)
    pair = torch.rand(4, 2, 3, 32, 32)
    samples = [{"source": p[0], "target": p[1], "task": 0, "index": i} for i, p in enumerate(pair)]
    with pytest.warns(UserWarning, match="no `val_dataloader`"):
        Trainer(max_epochs=1, **SILENT).fit(model, DataLoader(samples, batch_size=2))
    changed = {n for n, v in model.state_dict().items() if not torch.equal(v, before[n])}
    assert "adapter.up" in changed
    assert all(name.startswith("adapter.") for name in changed)
    out = model.eval()(pair[:1, 0], pair[:1, 0], pair[:1, 1])
    assert out.shape == (1, 3, 32, 32)
    assert out.isfinite().all()


def test_the_context_of_kontext_has_ids_of_its_own():
    """With those of the target it could not be told from it: the source would be ignored."""
    model, seen = real("flux-kontext"), []
    model.editor.transformer.pos_embed.register_forward_pre_hook(lambda _, x: seen.append(x[0]))
    image = torch.rand(1, 3, 32, 32)
    with torch.inference_mode():
        model.eval()(image, image, image, steps=1)
    target, context = seen[0][-2 * 8 * 8 :].chunk(2)  # the words stand before, all at 0
    assert target[:, 0].eq(0).all()
    assert torch.equal(context, target + torch.tensor([1, 0, 0]))
    assert len(target.unique(dim=0)) == len(target) > 1


def test_only_the_adapter_is_saved_with_a_fetched_base(tmp_path):
    """The base is a folder here, in the hub's layout; it is fetched again, or missed clearly."""
    from transformers import SiglipVisionConfig, SiglipVisionModel

    parts = real("flux-kontext").editor
    parts.transformer.save_pretrained(tmp_path / "base/transformer")
    parts.vae.save_pretrained(tmp_path / "base/vae")
    SiglipVisionModel(SiglipVisionConfig(**SIGLIP)).save_pretrained(tmp_path / "siglip")
    options = {"base": str(tmp_path / "base"), "encoder": str(tmp_path / "siglip")}
    from zoo.base import weights_follow

    with weights_follow():  # the text encoders of the empty prompt are not in this folder
        model = real(
            "flux-kontext", **options, base_sizes=None, encoder_sizes=None, pretrained=True
        )
    keys = set(model.state_dict())
    assert {key.split(".")[0] for key in keys} == {"adapter", "editor"}
    assert {key for key in keys if key.startswith("editor")} == {"editor.prompt", "editor.pooled"}
    model.save_pretrained(tmp_path / "hub")
    again = DeltaAdapter.from_pretrained(tmp_path / "hub")
    inputs = model.example_inputs()
    with torch.no_grad():
        assert torch.equal(again(**inputs), model.eval()(**inputs))
    (tmp_path / "base/transformer/config.json").unlink()
    with pytest.raises(ZooError, match=r"transformer of .* cannot be fetched.*qwen-edit"):
        DeltaAdapter.from_pretrained(tmp_path / "hub")


def test_weights_of_another_width_are_refused():
    with pytest.raises(ZooError, match="adapter"):
        DeltaAdapter(**TINY).load_state_dict(
            DeltaAdapter(**{**TINY, "adapter_dim": 32}).state_dict()
        )
