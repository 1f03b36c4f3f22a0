"""What several of the hub's tests begin with."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import file_download as hf_file_download
from huggingface_hub.utils import _http as hf_http

from zoo import DegBins
from zoo.publish import build

from .roundtrip import REPO, tiny, write_run


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published folder, which no test may change."""
    root = tmp_path_factory.mktemp("built")
    build(DegBins, write_run(tiny(), root), root / "hub", repo_id=REPO, license="mit")
    return root / "hub"


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    """The same, to tamper with."""
    return Path(shutil.copytree(built, tmp_path / "copy"))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the client would have slept between its attempts."""
    slept: list[float] = []
    for module in (hf_http, hf_file_download):
        monkeypatch.setattr(module, "time", SimpleNamespace(sleep=slept.append))
    return slept
