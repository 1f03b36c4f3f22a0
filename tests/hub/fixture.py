"""The pytest fixture `hub`: a running test hub, and this process's hub client pointed at it.

`huggingface_hub` reads its environment when it is imported, so the values it read are replaced as
well. Child processes inherit the environment. All of tests/ gets the fixture by one line in
tests/conftest.py: `from .hub.fixture import hub as hub`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .server import Hub


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A fresh hub, the only one that `huggingface_hub` knows; its cache is in `tmp_path / "hf"`."""
    with Hub() as hub:
        point_here(monkeypatch, hub, tmp_path / "hf")
        yield hub


def point_here(monkeypatch: pytest.MonkeyPatch, hub: Hub, home: Path) -> None:
    """Make `hub` the endpoint, and `home` the HF_HOME, of this process and its children."""
    from huggingface_hub import constants, hf_api

    for variable, text in hub.env(home).items():
        monkeypatch.setenv(variable, text)
    replaced: dict[str, str | bool] = {
        "ENDPOINT": hub.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HOME": str(home),
        "HF_HUB_CACHE": str(home / "hub"),
        "HUGGINGFACE_HUB_CACHE": str(home / "hub"),
        "HF_TOKEN_PATH": str(home / "token"),
        "HF_STORED_TOKENS_PATH": str(home / "stored_tokens"),
        "HF_XET_CACHE": str(home / "xet"),
        "AGENT_HARNESSES_PATH": str(home / ".agent_harnesses.json"),
        "HF_HUB_OFFLINE": False,
    }
    for name, value in replaced.items():
        monkeypatch.setattr(constants, name, value, raising=False)  # not all are in each release
    monkeypatch.setattr(hf_api.api, "endpoint", hub.url)  # behind huggingface_hub.create_repo etc.
