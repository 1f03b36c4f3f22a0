"""Reads JSON Lines, and says which line is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zoo.errors import ZooError


def read_json_lines(path: Path, what: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a file, one by one, each with where it stands.

    Args:
        path: Of the file; empty lines are skipped.
        what: The rows are, for an error.

    Raises:
        ZooError: If the file is missing, or a line is no JSON object; it names the line.
    """
    if not path.is_file():
        raise ZooError(f"No file of {what} at {path}.")
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}, line {number},"
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ZooError(f"{where} is no JSON: {error}.") from error
            if not isinstance(row, dict):
                raise ZooError(f"{where} is a {type(row).__name__}: expected an object.")
            yield where, row
