"""The module: missing sensors, thresholds, baselines, the transformer, words and pictures."""

import json
import math

import pytest
import torch
from lightning import Trainer, seed_everything

from tests.sem_fas.case import CASE
from zoo import SemFas
from zoo.datamodules import MultimodalFASDataModule
from zoo.errors import ZooError
from zoo.export import export
from zoo.face_files import MODALITIES
from zoo.sem_fas import FASConcat
from zoo.sem_fas.metrics import GroupMeans, Largest, SourceCalibration

SILENT = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
VIT = {
    "encoder": "vit_base_patch16_224",
    "encoder_options": {"depth": 2, "embed_dim": 24, "num_heads": 2, "patch_size": 8},
}
BASELINES = [{}, {"aux": True}, {"fusion": "late"}]


def build(cls=SemFas, **changes):
    torch.manual_seed(0)
    sizes = CASE.model if cls is SemFas else {"image_size": CASE.model["image_size"]}
    return cls(**{**sizes, **changes}).eval()


def data(**changes):
    return MultimodalFASDataModule(**{**CASE.data, **changes})


def batch(split="train"):
    module = data()
    module.setup("test" if split == "test" else "fit")
    return next(iter(getattr(module, f"{split}_dataloader")()))


def forward(model, given, mask):
    return model(*(given[m] for m in MODALITIES), mask)


@pytest.mark.parametrize("cls", [SemFas, FASConcat])
@pytest.mark.parametrize("options", [{}, VIT], ids=["cnn4", "vit"])
def test_what_a_missing_sensor_holds_does_not_matter(cls, options):
    model, given = build(cls, **options), batch()
    mask = torch.tensor([[True, False, True]]).expand(len(given["mask"]), 3)
    expected = forward(model, given, mask)
    for other in (torch.rand_like(given["depth"]), torch.full_like(given["depth"], torch.nan)):
        found = forward(model, {**given, "depth": other}, mask)
        for key, value in expected.items():
            assert torch.equal(found[key], value)
    changed = forward(model, {**given, "ir": 1 - given["ir"]}, mask)
    assert not torch.equal(changed["p_live"], expected["p_live"])


def test_every_set_of_sensors_decides_and_explains():
    model, given = build(), batch()
    for number in range(1, 8):
        mask = torch.tensor([[bool(number >> i & 1) for i in range(3)]]).expand(12, 3)
        out = forward(model, given, mask)
        gap = 2 * out["p_live"] - 1 - out["phi_main"].sum(dim=1) - out["phi_pair"].sum(dim=1)
        assert gap.abs().max() < 1e-5
        result = model.results(given["name"], mask, out)[0]
        assert len(result.phi_main) == int(mask[0].sum())
        assert "Decision:" in model.explain_text(result)


def bad_batches():
    good = {"rgb": torch.rand(2, 3, 32, 32), "depth": torch.rand(2, 1, 32, 32)}
    good |= {"ir": torch.rand(2, 1, 32, 32), "mask": torch.ones(2, 3).bool()}
    nan = good["depth"].clone()
    nan[1, 0, 3, 3] = torch.nan
    integers = (255 * good["rgb"]).byte()
    none = torch.tensor([[True, False, False], [False, False, False]])
    for changes, pattern in (
        ({"mask": none}, "Sample 1 of the batch has no modality"),
        ({"ir": torch.rand(2, 1, 16, 32)}, r"ir has the shape \(2, 1, 16, 32\): expected"),
        ({"rgb": 255 * good["rgb"]}, r"rgb has values from .*: expected 0\.\.1"),
        ({"rgb": integers}, "rgb is a tensor of uint8"),
        ({"depth": nan}, "depth has NaN or infinite depths: set holes to 0"),
        ({"mask": torch.ones(2, 2).bool()}, r"mask has the shape \(2, 2\)"),
        ({"mask": torch.ones(2, 3)}, "the type float32"),
    ):
        yield pytest.param({**good, **changes}, pattern, id=pattern[:25])


@pytest.mark.parametrize(("arguments", "pattern"), list(bad_batches()))
def test_bad_tensors(arguments, pattern):
    with pytest.raises(ZooError, match=pattern):
        build()(**arguments)


@pytest.mark.parametrize(
    ("cls", "options", "pattern"),
    [
        (SemFas, {"weights": {"cover": 1.0}}, "no term 'cover'.*Did you mean 'cov'"),
        (SemFas, {"weights": {"cov": -1.0}}, "must not be negative"),
        (SemFas, {"budget": 0.0}, "0 < budget <= 1"),
        (SemFas, {"n_heads": 0}, "n_heads=0 must be at least 1"),
        (SemFas, {"modality_dropout": (0.1, 1.0, 0.3)}, "a chance below 1 for each"),
        (SemFas, {"threshold": 1.5}, "threshold=1.5"),
        (SemFas, {"encoder": "vit_of_nobody"}, "encoder 'vit_of_nobody' is neither 'cnn4'"),
        (SemFas, {"encoder": "resnet18"}, "not a ViT|neither"),
        (FASConcat, {"fusion": "lat"}, "Did you mean 'late'"),
    ],
)
def test_options_that_do_not_go(cls, options, pattern):
    with pytest.raises(ZooError, match=pattern):
        build(cls, **options)


def test_predict_needs_a_sensor():
    with pytest.raises(ZooError, match="at least one of rgb, depth and ir"):
        build().predict()


# -- thresholds --------------------------------------------------------------------------------


def test_calibration_by_set_of_sensors():
    metric = SourceCalibration(masks=3, uncertainties=1)
    nan = math.nan
    scores = torch.tensor([[0.1, nan, nan], [0.3, 0.5, nan], [0.7, 0.9, nan], [0.9, nan, nan]])
    doubts = torch.arange(12.0).view(4, 3, 1)
    metric.update(scores[:2], torch.tensor([0, 0]), doubts[:2])
    metric.update(scores[2:], torch.tensor([1, 1]), doubts[2:])
    thresholds, limits = metric.compute()
    assert thresholds.tolist() == pytest.approx([0.5, 0.7, 0.5])
    assert limits[:, 0].tolist() == pytest.approx([0.95 * 9, 4 + 0.95 * 3, 1.0])


def test_fit_stores_thresholds_of_the_source_data_in_the_checkpoint(tmp_path):
    seed_everything(0)
    model, module = build().train(), data()
    trainer = Trainer(max_epochs=1, **SILENT)
    trainer.fit(model, module)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    again = SemFas.load_from_checkpoint(tmp_path / "a.ckpt")
    assert torch.equal(again.thresholds, model.thresholds)
    assert torch.equal(again.limits, model.limits)
    calibration = SourceCalibration(8, 3)
    model.eval()
    model.calibration = calibration
    for given in module.val_dataloader():
        with torch.no_grad():
            model.validation_step(given, 0)
    thresholds, limits = calibration.compute()
    assert torch.equal(thresholds, model.thresholds)
    assert torch.equal(limits, model.limits)
    assert (limits[1:] < 1).any()


def test_decisions_follow_the_threshold_and_the_limits():
    model, given = build(), batch()
    with torch.no_grad():
        out = forward(model, given, given["mask"])
    highest = out["p_live"].max()
    model.thresholds.fill_(float(highest))
    found = model.results(given["name"], given["mask"], out)
    assert sum(one.decision == "live" for one in found) == int((out["p_live"] >= highest).sum())
    model.limits[7, 2] = float(out["u_cov"].median())
    doubted = model.results(given["name"], given["mask"], out)
    unsure = out["u_cov"] > model.limits[7, 2]
    assert [one.decision == "abstain" for one in doubted] == unsure.tolist()
    text = next(one for one in doubted if one.decision == "abstain").explain()
    assert "outside of what the classes measure (u_cov" in text
    fixed = build(threshold=0.25)
    assert fixed.results(["a"] * 12, given["mask"], out)[0].threshold == 0.25


def test_words_name_the_driver_and_the_pair():
    model, given = build(), batch()
    out = {k: v.clone() for k, v in forward(model, given, given["mask"]).items()}
    out["p_live"][0] = 0.1
    out["phi_main"][0] = torch.tensor([0.1, -0.05, -0.62])
    out["evidence"][0] = torch.tensor([0.45, 0.05])
    out["synergy"][0] = torch.tensor([[-0.05, 0.01, 0.0], [0.0, 0.0, 0.0]])
    text = model.results(given["name"], given["mask"], out)[0].explain()
    assert "IR drove the decision (-0.62)." in text
    assert "RGB and depth suppress each other's evidence of spoof (-0.10)." in text


def test_a_prediction_is_written_as_numbers_words_and_a_picture(tmp_path):
    model, given = build(), batch()
    (first, *_) = model.predict_step(given, 0)
    paths = model.write_prediction(first, tmp_path / first["name"])
    record = json.loads(paths[0].read_text())
    assert record["decision"] in ("live", "spoof", "abstain")
    assert set(record["phi_pair"]) == {"rgb-depth", "rgb-ir", "depth-ir"}
    assert record["explanation"].startswith("Decision:")
    assert paths[1].read_bytes().startswith(b"\x89PNG")


# -- baselines and encoders ----------------------------------------------------------------------


@pytest.mark.parametrize("options", BASELINES)
def test_baselines_learn_and_test(options):
    seed_everything(0)
    model, module = build(FASConcat, **options).train(), data()
    trainer = Trainer(max_epochs=1, **SILENT)
    trainer.fit(model, module)
    (found,) = trainer.test(model, module, verbose=False)
    assert {"test_hter_complete", "test_hter_missing", "test_u_mc_error_auroc"} <= set(found)
    assert not any("u_cov" in name for name in found)
    model.log = lambda *_, **__: None
    model.training_step(batch(), 0).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_passes_with_dropout_differ_and_leave_the_mode():
    model, given = build(FASConcat, dropout=0.5), batch()
    features = model.encode(given, given["mask"])
    found = model.sample(features, given["mask"], passes=4)
    assert found.shape == (4, 12)
    assert found.std(dim=0).min() > 0
    assert not any(m.training for m in model.modules() if isinstance(m, torch.nn.Dropout))
    steady = build(FASConcat, dropout=0.0).sample(features, given["mask"], passes=3)
    assert steady.std(dim=0).max() < 1e-6


@pytest.mark.parametrize("protocol", ["complete", "missing"])
def test_the_protocol_decides_which_conditions_are_reported(protocol):
    module = data(protocol=protocol)
    (found,) = Trainer(**SILENT).test(build(), module, verbose=False)
    conditions = {k.removeprefix("test_auc_") for k in found if k.startswith("test_auc_")}
    expected = {"complete": {"complete"}}
    expected["missing"] = {"complete", "no_depth", "no_ir", "rgb_only", "missing"}
    assert conditions == expected[protocol]
    assert found["test_decomposition_error"] < 1e-5
    assert {k for k in found if k.startswith("test_phi_depth_") and "_ir_" not in k} == {
        f"test_phi_depth_{kind}" for kind in ("live", "print", "replay", "mask", "cut")
    }


def test_the_transformer_trains_adapters_and_keeps_its_trunk():
    model, module = build(**VIT).train(), data()
    trunk = {k: v.clone() for k, v in model.encoders.trunk.state_dict().items()}
    adapters = [a.up.clone() for a in model.encoders.adapters]
    Trainer(max_epochs=2, limit_val_batches=0, **SILENT).fit(model, module)
    for key, value in model.encoders.trunk.state_dict().items():
        assert torch.equal(trunk[key], value)
    for before, adapter in zip(adapters, model.encoders.adapters, strict=True):
        assert not torch.equal(before, adapter.up)
    assert not model.train().encoders.trunk.training


def test_fresh_adapters_leave_the_tokens_alone():
    """So that training starts at the pretrained transformer: one modality against timm itself."""
    model, given = build(**VIT), batch()
    encoders = model.encoders
    with torch.no_grad():
        found = encoders({m: given[m] for m in MODALITIES})
        image = (given["rgb"] - encoders.mean) / encoders.std
        expected = encoders.trunk.forward_features(image)[:, 1:].mean(dim=1)
    torch.testing.assert_close(found[:, 0], expected, atol=1e-5, rtol=1e-4)


def test_a_pretrained_trunk_is_not_saved(monkeypatch):
    import timm

    create = timm.create_model
    monkeypatch.setattr(
        timm, "create_model", lambda *a, pretrained, **k: create(*a, pretrained=False, **k)
    )
    model = build(pretrained=True, **VIT)
    assert not any("trunk" in key for key in model.state_dict())
    assert any("trunk" in key for key in build(**VIT).state_dict())
    other = build(pretrained=True, **VIT)
    other.load_state_dict(model.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("form", ["torch_export", "onnx"])
def test_the_graph_gives_what_predict_gives(tmp_path, form):
    """`export` itself compares, and writes nothing that differs."""
    if form == "onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
    model = build()
    torch.nn.init.normal_(model.head.weight)
    assert export(model, tmp_path / "sem", form).is_file()


# -- metrics -------------------------------------------------------------------------------------


def test_group_means_and_the_largest():
    means = GroupMeans(["a", "b", "c"], ["x"])
    means.update(torch.tensor([[1.0], [2.0], [6.0]]), torch.tensor([0, 2, 2]))
    assert {k: v.item() for k, v in means.compute().items()} == {"x_a": 1.0, "x_c": 4.0}
    largest = Largest()
    largest.update(torch.tensor([1.0, 3.0]))
    largest.update(torch.tensor([2.0]))
    assert largest.compute() == 3


def test_the_figure_shows_captures_with_their_effects():
    model, given = build(), batch("test")
    out = forward(model, given, given["mask"])
    figure = model.figures(given, out)["effects"]
    titles = " ".join(axis.get_title() for axis in figure.axes)
    assert titles.count("truth:") == 4
    assert "depth" in titles
