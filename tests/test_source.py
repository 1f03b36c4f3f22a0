"""What holds for the source as a whole."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    path
    for folder in ("zoo", "datamodules", "callbacks", "cli", "benchmarks", "tests")
    for path in (ROOT / folder).rglob("*.py")
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_file_is_short_and_imports_one_lightning(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 500
    assert not re.search(r"^\s*(import|from) pytorch_lightning", text, re.MULTILINE)
