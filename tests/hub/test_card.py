"""The card: metadata that the hub accepts, the numbers of the run, and all that people ask for."""

from pathlib import Path

import pytest
import yaml
from huggingface_hub import HfApi, ModelCard

from tests.toy import Toy
from zoo import DegBins
from zoo.card import SECTIONS, card_metrics, missing_sections, read_card, render_card
from zoo.catalog import list_methods
from zoo.errors import ZooError
from zoo.publish import publish, read_run

from .roundtrip import REPO, tiny, write_run
from .server import Hub


@pytest.fixture
def card(tmp_path: Path) -> str:
    run = read_run(write_run(tiny(), tmp_path), "DegBins")
    figures = [f"figures/{path.name}" for path in run.figures]
    return render_card("DegBins", license="mit", repo_id=REPO, metrics=run.metrics, figures=figures)


def test_model_index_has_the_numbers_of_the_test_run(hub: Hub, tmp_path: Path):
    """huggingface_hub PR#3000, transformers#13528, axolotl#1020."""
    publish(DegBins, write_run(tiny(), tmp_path), REPO, license="mit")
    data = ModelCard.load(REPO).data
    assert card_metrics(data) == {"test_rmse": 0.0345678, "test_mae": 0.0123}
    result = data.eval_results[0]
    assert (result.metric_name, result.dataset_name) == ("rmse", "middlebury_mini")
    assert (result.dataset_split, result.task_type) == (
        "test",
        "guided-depth-super-resolution",
    )
    assert result.metric_args == {
        "seed": 7,
        "hardware": "2 CPU cores, x86_64",
        "commit": "abc1234",
        "date": "2026-01-02T03:04:05+00:00",
    }


def test_the_hub_accepts_the_metadata(hub: Hub, card: str):
    HfApi()._validate_yaml(card)
    assert [request.status for request in hub.calls("validate")] == [200]
    front = yaml.safe_load(card.split("---\n")[1])
    assert front["license"] == "mit"
    assert front["pipeline_tag"] == "depth-estimation"
    assert front["library_name"] == "lightning-zoo"
    assert None not in front.values()  # `datasets: null` is refused


def test_the_card_shows_numbers_hardware_pictures_and_how_to_use_it(card: str):
    assert 'DegBins.from_pretrained("org/model")' in card
    assert "| rmse | 0.03457 |" in card
    assert "middlebury_mini, test split, seed 7, 2 CPU cores" in card
    assert "Training took 12.5 s (10 steps) on 1 device(s)" in card
    assert "peak memory 800.0 MiB" in card
    assert "![test depth](figures/test_depth.png)" in card
    assert not missing_sections(card)
    assert "{{" not in card
    assert "\n\n\n" not in card


@pytest.mark.parametrize("method", list_methods(), ids=lambda m: m.name)
def test_every_method_renders_a_valid_and_whole_card(method):
    text = render_card(method.cls, license="mit")
    assert not missing_sections(text)
    assert read_card(text).license == "mit"


def test_a_class_outside_the_catalogue_has_a_card_without_prose():
    text = render_card("Toy", license="mit")
    assert read_card(text).model_name == "Toy"
    assert missing_sections(text) == list(SECTIONS)


def test_a_card_without_licence_is_rendered_but_is_not_valid(tmp_path: Path):
    Toy().save_pretrained(tmp_path)
    with pytest.raises(ZooError, match="no licence that the hub knows, but 'unknown'"):
        read_card((tmp_path / "README.md").read_text())


def test_values_of_a_record_cannot_break_the_front_matter(tmp_path: Path):
    evil = {"dataset": "x\n---\nlicense: other", "note": "{{ 7 * 7 }} {% raw %}"}
    metrics = {"metrics": {"test_a": 1.0}, "data": evil, "split": "test"}
    data = read_card(render_card("DegBins", license="mit", metrics=metrics))
    assert data.license == "mit"
    assert data.eval_results[0].dataset_name == evil["dataset"]
    assert data.eval_results[0].dataset_args == {"note": "{{ 7 * 7 }} {% raw %}"}
