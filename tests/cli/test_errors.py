"""A mistake on the command line or in a config ends in one sentence with the nearest name."""

import pytest
import yaml

from zoo.cli.main import main

TOY = ["--model", "tests.toy.Toy", "--data", "tests.toy.ToyDataModule"]


def sentence(*args):
    """What ``zoo`` says before it stops."""
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    assert isinstance(stop.value.code, str), stop.value.code
    assert "\n" not in stop.value.code
    return stop.value.code


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--model.widht", "3"], "Toy has no argument 'widht'. Did you mean 'width'?"),
        (["--trainer.max_epoch", "3"], "Did you mean 'trainer.max_epochs'?"),
        (["--trainer.max_epochs", "two"], "trainer.max_epochs: expected int, got 'two'."),
        (["--model.width", "wide"], "model.width: expected int, got 'wide'."),
        (["--optimizer", "Adamm"], "unknown class 'Adamm'. Did you mean 'Adam'?"),
        (["--optimizer", "Adam", "--optimizer.lrr", "1"], "Did you mean 'lr'?"),
        (["--trainr", "1"], "unknown option --trainr. Did you mean 'trainer'?"),
        (["--trainer.callbacks", "LearningRatMonitor"], "Did you mean 'LearningRateMonitor'?"),
        (["--ckpt_path", "gone.ckpt"], "No checkpoint at gone.ckpt."),
    ],
)
def test_misspelt_option(options, expected):
    assert expected in sentence("fit", *TOY, *options)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model": {"class_path": "DegBin"}}, "unknown class 'DegBin'. Did you mean 'DegBins'?"),
        ({"model": {"class_path": "DegBins", "init_args": {"chanels": 3}}}, "mean 'channels'?"),
        ({"trainr": {"max_epochs": 3}}, "Did you mean 'trainer"),
        ({"trainer": {"max_epochs": "two"}}, "trainer.max_epochs: expected int, got 'two'."),
        ({"trainer": {"max_epoch": 2}}, "Did you mean 'trainer.max_epochs'?"),
    ],
)
def test_misspelt_key_in_a_config(tmp_path, changes, expected):
    config = {"data": {"class_path": "GuidedDepthDataModule"}, **changes}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    assert expected in sentence("fit", "--config", "mine.yaml")


def test_error_of_a_constructor_is_shown_as_it_is():
    said = sentence("fit", "--config", "degbins", "--model.head", "bin")
    assert said == "zoo: head is 'bin', not one of bins, additive. Did you mean 'bins'?"


def test_unknown_config_and_command():
    assert "Did you mean 'degbins'?" in sentence("fit", "--config", "degbin")
    assert "Did you mean 'predict'?" in sentence("predic")


def test_missing_data_points_to_the_configs():
    assert "data is missing: give --config NAME" in sentence("fit", "--model", "tests.toy.Toy")


def test_broken_yaml_names_the_file(tmp_path):
    (tmp_path / "broken.yaml").write_text("model: [")
    assert "broken.yaml" in sentence("fit", "--config", "broken.yaml")
