"""`zoo export`: the graph gives what the model gives, or is not written."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.toy import Toy
from zoo.errors import ZooError
from zoo.export import Exportable, export


class Raw(torch.nn.Module):
    """From numbers of 0 to 255 to a percentage."""

    def __init__(self, model: Toy) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"percent": 100 * self.model(pixels / 255)["y"]}


class Predictor(Toy):
    """Has raw inputs, and sizes that stay free."""

    factor = 100

    def predict(self, pixels: np.ndarray) -> np.ndarray:
        y = self.eval()(torch.from_numpy(pixels) / 255)["y"]
        return self.factor * y.detach().numpy()

    def exportable(self) -> Exportable:
        pixels = np.float32([[0, 100, 255], [3, 2, 1]])
        return Exportable(
            Raw(self),
            {"pixels": torch.from_numpy(pixels)},
            {"percent": torch.from_numpy(self.predict(pixels))},
            dynamic_shapes={"pixels": {0: torch.export.Dim("batch")}},
        )


class Branches(Toy):
    """Its graph depends on the values."""

    def forward(self, x):
        y = super().forward(x)["y"]
        return {"y": y if bool(y.sum() > 0) else -y}


class Refuses(Toy):
    """Says why."""

    def exportable(self):
        raise ZooError("Refuses solves a linear program, which no graph can hold.")


def test_a_graph_of_forward(tmp_path: Path):
    model = Toy().train()
    path = export(model, tmp_path / "toy", "torch_export")
    assert path == tmp_path / "toy.pt2"
    assert model.training
    graph = torch.export.load(path).module()
    inputs = model.example_inputs()
    assert torch.allclose(graph(**inputs)["y"], model.eval()(**inputs)["y"])


@pytest.mark.slow
def test_a_graph_of_predict_with_its_processing(tmp_path: Path):
    model = Predictor()
    path = export(model, tmp_path / "toy.pt2", "torch_export")
    pixels = np.float32(np.random.default_rng(0).uniform(0, 255, (5, 3)))
    found = torch.export.load(path).module()(pixels=torch.from_numpy(pixels))["percent"]
    np.testing.assert_allclose(found.detach(), model.predict(pixels), rtol=1e-4)


@pytest.mark.slow
def test_the_same_in_onnx(tmp_path: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = Predictor()
    path = export(model, tmp_path / "toy", "onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["toy.onnx"]
    session = onnxruntime.InferenceSession(path)
    pixels = np.float32(np.random.default_rng(0).uniform(0, 255, (5, 3)))
    (found,) = session.run(["percent"], {"pixels": pixels})
    np.testing.assert_allclose(found, model.predict(pixels), rtol=1e-4)


def test_a_method_that_has_no_graph_says_why(tmp_path: Path):
    with pytest.raises(ZooError, match="solves a linear program"):
        export(Refuses(), tmp_path / "toy", "onnx")


def test_a_graph_that_depends_on_values_is_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    with pytest.raises(ZooError, match="Branches cannot be exported: ") as caught:
        export(Branches(), tmp_path / "toy", "torch_export")
    assert "\n" not in str(caught.value)
    assert not any(capfd.readouterr())
    assert not list(tmp_path.iterdir())


def test_a_graph_that_gives_something_else_is_not_written(tmp_path: Path):
    model = Predictor()
    model.factor = 101
    with pytest.raises(ZooError, match="'percent' differs from predict's by 9"):
        export(model, tmp_path / "toy", "torch_export")
    assert not list(tmp_path.iterdir())


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(ZooError, match=r"onnxruntime: pip install .*lightning-zoo\[export\]"):
        export(Toy(), tmp_path / "toy", "onnx")
    assert not list(tmp_path.iterdir())


def test_an_unknown_format(tmp_path: Path):
    with pytest.raises(ZooError, match="Unknown format 'coreml'"):
        export(Toy(), tmp_path / "toy", "coreml")
