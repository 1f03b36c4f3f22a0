"""DeltaLM and DeltaImageClassifier as modules: text, figures, and their training."""

import json
import math
import os

import numpy as np
import pytest
import torch
from lightning import Trainer, seed_everything
from PIL import Image

import zoo
from tests.delta_momentum.case import CASE
from zoo import DeltaImageClassifier, DeltaLM
from zoo.callbacks import DeltaDiagnostics, DeltaKeyCapture
from zoo.callbacks.delta_diagnostics import spectrum
from zoo.cli.main import main
from zoo.datamodules import ByteTextDataModule, DigitsDataModule
from zoo.delta_momentum.module import token_loss
from zoo.errors import ZooError
from zoo.optim.keys import KEYS

SILENT = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
QUIET = ["--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]


def model():
    seed_everything(0)
    net = DeltaLM(**CASE.model)
    torch.nn.init.normal_(net.network.lm_head.weight)
    return net


def test_generation_is_seeded_and_greedy_takes_the_likeliest():
    net = model()
    assert net.generate("def ", 12, seed=1) == net.generate("def ", 12, seed=1)
    assert net.generate("def ", 12, seed=1) != net.generate("def ", 12, seed=2)
    ids = torch.tensor([list(b"def ")])
    expected = chr(int(net.eval()(ids)[0, -1].argmax()))
    assert net.generate("def ", 1, temperature=0) == expected
    assert net.generate("def ", 1, top_k=1) == expected


def test_generation_looks_back_on_one_context():
    net = model()
    long = "x = 1\n" * 20
    assert net.generate(long, 5) == net.generate(long[-CASE.model["context"] :], 5)


@pytest.mark.parametrize(
    ("call", "pattern"),
    [
        (lambda net: net.generate("caf\u00e9"), "U.00E9"),
        (lambda net: net.generate("a", 0), "max_new_tokens=0"),
        (lambda net: net.generate("a", 1, temperature=-1), "temperature"),
        (lambda net: net.bits_per_byte("a"), "two tokens"),
    ],
)
def test_wrong_texts_and_numbers_are_one_sentence(call, pattern):
    with pytest.raises(ZooError, match=pattern):
        call(model())


def test_bits_per_byte_scores_each_byte_once_with_what_comes_before():
    net = model().eval()
    text = "import os, sys\nprint(os.name)\n" * 4
    ids, context = list(text.encode()), CASE.model["context"]
    bits = 0.0
    for place in range(1, len(ids)):
        done = (place - 1) // (context // 2) * (context // 2) + 1  # scored before this window
        end = min(len(ids), done + context // 2)
        before = torch.tensor([ids[max(0, end - 1 - context) : place]])
        with torch.no_grad():
            bits -= float(net(before)[0, -1].log_softmax(0)[ids[place]]) / math.log(2)
    assert net.bits_per_byte(text) == pytest.approx(bits / (len(ids) - 1), rel=1e-4)


def test_loss_of_an_even_guess_is_the_logarithm_of_the_vocabulary():
    logits, targets = torch.zeros(2, 5, 128), torch.randint(128, (2, 5))
    assert float(token_loss(logits, targets)) == pytest.approx(math.log(128))


def test_capture_feeds_the_optimiser_in_a_fit_and_leaves_nothing(caplog):
    net, data = model(), ByteTextDataModule(**CASE.data)
    capture = DeltaKeyCapture()
    seen = []

    class Watch(DeltaKeyCapture):
        def on_train_batch_end(self, trainer, pl_module, *_):
            seen.append(len(capture.handle.names))

    trainer = Trainer(max_steps=3, limit_val_batches=0, callbacks=[capture, Watch()], **SILENT)
    trainer.fit(net, data)
    assert seen == [14] * 3  # seven matrices in each of two blocks, not the output
    assert "lm_head.weight" in caplog.text
    weight = net.network.blocks[0].mlp.up_proj.weight
    assert weight not in KEYS.shapes
    assert not KEYS.peek(weight)


def test_capture_is_idle_without_an_optimiser_that_needs_it():
    net, data, capture = model(), ByteTextDataModule(**CASE.data), DeltaKeyCapture()
    net.optimizer_config = {"class_path": "torch.optim.AdamW"}
    Trainer(max_steps=2, limit_val_batches=0, callbacks=[capture], **SILENT).fit(net, data)
    assert capture.handle is None


def test_unit_values_with_a_loss_scale_are_refused():
    class Mixed:
        precision, optimizers = "16-mixed", []

    net = model()
    Mixed.optimizers = [zoo.optim.DeltaSGD(net.parameters())]
    with pytest.raises(ZooError, match="bf16-mixed"):
        DeltaKeyCapture(values="unit").on_train_batch_start(Mixed(), net, None, 0)


@pytest.mark.parametrize("optimizer", ["zoo.optim.DeltaAdamW", "torch.optim.AdamW"])
def test_diagnostics_look_at_each_layer_and_change_nothing(optimizer, tmp_path):
    def last(diagnose):
        net, data = model(), ByteTextDataModule(**CASE.data)
        net.optimizer_config = {"class_path": optimizer, "init_args": {"lr": 1e-2}}
        diagnostics = DeltaDiagnostics(every_n_steps=2, batches=2)
        callbacks = [DeltaKeyCapture(), *([diagnostics] if diagnose else [])]
        Trainer(max_steps=4, limit_val_batches=0, callbacks=callbacks, **SILENT).fit(net, data)
        return net.network.blocks[0].mlp.up_proj.weight.detach(), diagnostics.history

    plain, _ = last(False)
    watched, history = last(True)
    assert torch.equal(plain, watched)
    assert {one.step for one in history} == {2, 4}
    assert len(history) == 2 * 14
    for one in history:
        assert -1 <= one.delta_cos <= 1
        assert -1 <= one.ema_cos <= 1
        assert one.delta_error <= 2
        assert 1 <= one.effective_rank <= 32
        assert one.condition >= 1


def test_error_of_the_best_memory_is_that_of_least_squares():
    """Against keys and values themselves, for one layer."""
    from zoo.callbacks.delta_diagnostics import _cosine_and_error

    keys = torch.nn.functional.normalize(torch.randn(50, 6), dim=1)
    values = torch.randn(50, 3)
    memory = torch.randn(3, 6)
    gradient, second = values.T @ keys / 50, keys.T @ keys / 50
    _, error = _cosine_and_error(memory, gradient, second, float(values.square().sum() / 50))
    read = keys @ memory.T
    scale = (read * values).sum() / read.square().sum()
    best = (scale * read - values).square().sum() / values.square().sum()
    if scale > 0:
        assert error == pytest.approx(float(best), rel=1e-4)
    _, opposite = _cosine_and_error(-memory, gradient, second, float(values.square().sum() / 50))
    assert (error - 1) == pytest.approx(1 - opposite, rel=1e-4)


def test_spectrum_of_known_matrices():
    assert spectrum(torch.eye(5) / 5) == pytest.approx((5.0, 1.0))
    rank, condition = spectrum(torch.diag(torch.tensor([0.9, 0.1, 0.0])))
    assert rank == pytest.approx(math.exp(-0.9 * math.log(0.9) - 0.1 * math.log(0.1)), rel=1e-4)
    assert condition == pytest.approx(1e8)


def test_diagnostics_write_their_history_and_test_metrics(tmp_path):
    options = [*CASE.options(), *QUIET, "--trainer.max_epochs", "1"]
    options += ["--trainer.log_every_n_steps", "1"]
    callback = "--trainer.callbacks+=zoo.callbacks.DeltaDiagnostics"
    every = "--trainer.callbacks.every_n_steps=2"
    main(["fit", "--config", "zoo/delta_momentum.yaml", *options, callback, every])
    (run,) = (tmp_path / "runs/delta_momentum").glob("version_0")
    history = json.loads((run / "delta_diagnostics.json").read_text())
    assert len(history) == 2 * 14
    assert (run / "figures/delta_diagnostics.png").stat().st_size > 0
    metrics = json.loads((run / "metrics.json").read_text())["metrics"]
    mean = np.mean([one["delta_cos"] for one in history])
    assert metrics["test_delta_cos"] == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize(
    ("arch", "channels", "size"),
    [("mlp", 1, 8), ("resnet18", 3, 32), ("vit_tiny_patch4_32", 3, 32)],
)
def test_each_architecture_takes_images_and_gives_all_weights_a_gradient(arch, channels, size):
    net = DeltaImageClassifier(arch=arch, in_channels=channels, image_size=size)
    capture = zoo.optim.attach_delta_keys(net)
    images = net.example_inputs()["images"]
    assert images.shape == (2, channels, size, size)
    logits = net(images)
    assert logits.shape == (2, 10)
    torch.nn.functional.cross_entropy(logits, torch.tensor([1, 2])).backward()
    assert all(p.grad is not None for p in net.parameters() if p.requires_grad)
    matrices = {n for n, p in net.named_parameters() if p.ndim >= 2 and "embed" not in n}
    captured = {f"{name}.weight" for name in capture.names if "embed" not in name}
    assert captured == matrices - {"network.cls_token"}
    capture.remove()


def test_digits_are_learnt_predicted_and_published(tmp_path):
    seed_everything(0)
    net, data = DeltaImageClassifier(), DigitsDataModule()
    capture = DeltaKeyCapture(key_fraction=1.0)
    trainer = Trainer(max_epochs=3, callbacks=[capture], **SILENT)
    trainer.fit(net, data)
    assert float(trainer.callback_metrics["val_accuracy"]) > 0.8
    data.setup("test")
    sample = data.datasets["test"][0]
    pixels = (255 * sample["image"][0]).round().byte().numpy()
    Image.fromarray(pixels).save(tmp_path / "one.png")
    shares = net.predict(tmp_path / "one.png")
    assert shares.sum() == pytest.approx(1, abs=1e-5)
    (prediction,) = net.eval().predict_step({"name": ["one"], "image": sample["image"][None]}, 0)
    np.testing.assert_allclose(prediction["probabilities"].detach().numpy(), shares, atol=0.01)
    (path,) = net.write_prediction(
        {**prediction, "probabilities": torch.tensor(shares)}, tmp_path / "one"
    )
    assert json.loads(path.read_text())["class"] == int(shares.argmax())
    net.save_pretrained(tmp_path / "hub")
    again = zoo.from_pretrained(tmp_path / "hub")
    assert isinstance(again, DeltaImageClassifier)
    assert torch.equal(again(sample["image"][None]), net.eval()(sample["image"][None]))
    assert set(
        net.figures(
            {k: torch.as_tensor(v)[None] for k, v in sample.items()}, net(sample["image"][None])
        )
    ) == {"answers"}
    assert os.path.getsize(tmp_path / "hub/README.md")


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"arch": "resnet"}, "Did you mean 'resnet18'"),
        ({"mean": [0.1, 0.2]}, "in_channels=1"),
        ({"arch": "vit_tiny_patch4_32", "image_size": 30}, "multiple"),
    ],
)
def test_wrong_options_of_the_classifier(options, pattern):
    with pytest.raises(ZooError, match=pattern):
        DeltaImageClassifier(**options)
