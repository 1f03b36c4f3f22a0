"""Two lines in another method's config: its training then follows the delta rule."""

import logging

import pytest

from tests.case import load_case
from zoo.cli.main import main
from zoo.optim import delta

QUIET = ["--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]
TWO_LINES = """
optimizer: {class_path: zoo.optim.DeltaAdamW, init_args: {lr: 1.0e-3}}
trainer: {callbacks: [zoo.callbacks.DeltaKeyCapture]}
"""


@pytest.mark.parametrize("name", ["degbins", "sem_fas"])
def test_two_lines_are_enough(name, tmp_path, monkeypatch, caplog):
    (tmp_path / "delta.yaml").write_text(TWO_LINES)
    corrected = []
    forget = delta.forget
    monkeypatch.setattr(delta, "forget", lambda work: (corrected.append(len(work)), forget(work)))
    config = ["--config", f"zoo/{name}.yaml", "--config", "delta.yaml"]
    steps = ["--trainer.fast_dev_run", "3", "--test_after_fit", "false"]
    with caplog.at_level(logging.WARNING, "zoo.optim.delta"):
        main(["fit", *config, *load_case(name).options(), *steps, *QUIET])
    assert len(corrected) >= 2  # steps: as many as the tiny data have batches, at most three
    assert min(corrected) > 3  # matrices with keys, in each of them
    assert "no keys at all" not in caplog.text


def test_short_name_on_the_command_line(tmp_path):
    callback = "--trainer.callbacks+=DeltaKeyCapture"
    options = [*load_case("degbins").options(), *QUIET, callback, "--optimizer", "DeltaSGD"]
    main(["fit", "--config", "degbins", "--trainer.fast_dev_run", "true", *options])
