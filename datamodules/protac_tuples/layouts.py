"""The public layouts of degrader tables: PROTAC-8K's JSON, PROTAC-DB's CSV, plain tuples."""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.errors import ZooError, did_you_mean
from zoo.proteins import find_ligase, find_protein

UNLABELLED = -1
HIGH_DC50, HIGH_DMAX = 100.0, 80.0  # nM and %: a high degrader has at most and at least these
JSON_NAME = "PROTAC.json"
TUPLE_COLUMNS = ("smiles", "target_uniprot", "e3_type")
PROTAC8K_KEYS = ("smiles", "tar_path", "e3_ligase_path", "label")
PROTACDB_COLUMNS = ("Uniprot", "E3 ligase", "Smiles", "DC50 (nM)", "Dmax (%)")


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Attributes:
        where: Where it stands, for errors.
        smiles: As written.
        target: Accession, or several as "A/B".
        e3: Accession, or "Other".
        label: 1 high, 0 low, -1 not known.
        pdc50: -log10 of the half-degrading concentration in mol/l; NaN if not known.
        dmax: Largest share degraded, 0..1; NaN if not known.
        warhead: SMILES of the target's ligand; empty if not known.
    """

    where: str
    smiles: str
    target: str
    e3: str
    label: int
    pdc50: float = math.nan
    dmax: float = math.nan
    warhead: str = ""


def read_rows(path: Path, layout: str) -> tuple[list[Row], list[ZooError]]:
    """Reads a table.

    Args:
        path: A file, or the folder that holds it.
        layout: "tuples", "protacdb" or "protac8k".

    Returns:
        The good rows, and what is wrong with each bad one.

    Raises:
        ZooError: If the file as a whole is not of this layout.
    """
    columns, parse = LAYOUTS[layout]
    records = _entries(path) if layout == "protac8k" else _records(path, columns)
    rows, errors = [], []
    for where, record in records:
        try:
            rows.append(parse(where, record))
        except ZooError as error:  # noqa: PERF203  (each row may be wrong by itself)
            errors.append(error)
    return rows, errors


def _tuple(where: str, record: Mapping[str, Any]) -> Row:
    """The label is 1, 0 or empty, and may be absent; so may the warhead, a SMILES or any name."""
    text = (record.get("label") or "").strip()
    if text not in ("", "0", "1", "-1"):
        raise ZooError(f"{where}: label {text!r} is none of 1, 0 and empty.")
    target, e3 = _names(where, record["target_uniprot"], record["e3_type"])
    label = int(text) if text else UNLABELLED
    warhead = (record.get("warhead") or "").strip()
    return Row(where, record["smiles"], target, e3, label, warhead=warhead)


def _protacdb(where: str, record: Mapping[str, Any]) -> Row:
    """See :func:`degradation_label` for how labels are made."""
    target, e3 = _names(where, record["Uniprot"], record["E3 ligase"])
    dc50 = parse_range(record["DC50 (nM)"], f"{where}, DC50 (nM)")
    dmax = parse_range(record["Dmax (%)"], f"{where}, Dmax (%)")
    label = degradation_label(dc50, dmax)
    return Row(where, record["Smiles"], target, e3, label, _pdc50(dc50), _share(dmax))


def _protac8k(where: str, record: Mapping[str, Any]) -> Row:
    """Proteins are named by the stems of their files."""
    lacking = set(PROTAC8K_KEYS) - set(record)
    if lacking:
        raise ZooError(f"{where} lacks {', '.join(sorted(lacking))}.")
    label = record["label"]
    if label not in (-1, 0, 1):
        raise ZooError(f"{where}: label {label!r} is none of 1, 0 and -1.")
    target, e3 = _names(where, _stem(record["tar_path"]), _stem(record["e3_ligase_path"]))
    warhead = _stem(record.get("war_path") or "")
    return Row(where, str(record["smiles"]), target, e3, int(label), warhead=warhead)


LAYOUTS: Mapping[str, tuple[Sequence[str], Callable[[str, Mapping[str, Any]], Row]]] = {
    "tuples": (TUPLE_COLUMNS, _tuple),
    "protacdb": (PROTACDB_COLUMNS, _protacdb),
    "protac8k": (PROTAC8K_KEYS, _protac8k),
}


# -- numbers ---------------------------------------------------------------------------------------


def parse_range(text: str | None, where: str = "") -> tuple[float, float]:
    """Smallest and largest value that a measurement leaves open.

    "<0.1" is 0 to 0.1, ">10000" is 10000 to infinity, and "5/10", "5-10" and "5;10" are 5 to 10.
    A "~" says nothing more than the number. Empty, "N.D." and the like are 0 to infinity.

    Raises:
        ZooError: If it is no number; ``where`` is said first.
    """
    text = (text or "").strip().replace(",", "").replace("≤", "<").replace("≥", ">")
    if not text or re.fullmatch(r"(?i)n\.?/?[da]\.?|nan|none|-", text):
        return 0.0, math.inf
    low, high = math.inf, -math.inf
    for part in re.split(r"\s*[/;|]\s*|(?<=\d)\s*-\s*(?=\d)|\s+to\s+", text):
        match = re.fullmatch(r"([<>~=]*)\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*%?", part.strip())
        if match is None:
            start = f"{where}: " if where else ""
            raise ZooError(
                f"{start}{text!r} is no measurement: expected a number, or forms such as '<0.1', "
                "'>10000', '5/10' and '5-10'."
            )
        value = float(match[2])
        low = min(low, 0.0 if "<" in match[1] else value)
        high = max(high, math.inf if ">" in match[1] else value)
    return low, high


def degradation_label(dc50: tuple[float, float], dmax: tuple[float, float]) -> int:
    """High (1) if DC50 <= 100 nM and Dmax >= 80 %, low (0) if either fails, else -1.

    Decided only where the whole range of values that are left open agrees.
    """
    if dc50[1] <= HIGH_DC50 and dmax[0] >= HIGH_DMAX:
        return 1
    if dc50[0] > HIGH_DC50 or (dc50[0] == HIGH_DC50 and dc50[1] == math.inf):
        return 0
    return 0 if dmax[1] < HIGH_DMAX else UNLABELLED


def _pdc50(dc50: tuple[float, float]) -> float:
    """Of the geometric mean; NaN for a bound."""
    if dc50[0] <= 0 or dc50[1] == math.inf:
        return math.nan
    return 9 - 0.5 * (math.log10(dc50[0]) + math.log10(dc50[1]))


def _share(dmax: tuple[float, float]) -> float:
    if dmax[1] == math.inf or dmax[0] == 0 < dmax[1]:
        return math.nan
    return 0.5 * (dmax[0] + dmax[1]) / 100


# -- files -----------------------------------------------------------------------------------------


def _entries(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """The entries of ``PROTAC.json`` of DegradeMaster, each with its name for errors."""
    path = path / JSON_NAME if path.is_dir() else path
    if not path.is_file():
        raise ZooError(f"{path} is no file: expected {JSON_NAME} of the protac8k layout.")
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ZooError(f"{path} is no JSON: {error}") from error
    if not isinstance(entries, dict) or not all(isinstance(e, dict) for e in entries.values()):
        raise ZooError(f"{path} is no mapping from names to entries, as the protac8k layout has.")
    return [(f"{path.name}, entry {name}", entry) for name, entry in entries.items()]


def _records(path: Path, columns: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """The lines of a CSV with a header, each with its name for errors."""
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix.lower() == ".csv")
        if len(found) != 1:
            raise ZooError(
                f"{path} holds {len(found)} .csv files: expected one, or the path of one."
            )
        (path,) = found
    if not path.is_file():
        raise ZooError(f"{path} is no file: expected a table with {', '.join(columns)}.")
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            header = [name.strip() for name in reader.fieldnames or []]
            reader.fieldnames = header
            records = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error, EOFError) as error:
        raise ZooError(f"{path} is no readable CSV: {error}") from error
    for column in columns:
        if column not in header:
            raise ZooError(
                f"{path} has no column '{column}'; its columns are: {', '.join(header) or 'none'}."
                f"{did_you_mean(column, header)}"
            )
    rows = []
    for number, record in enumerate(records, start=1):
        where = f"{path.name}, row {number}"
        if any(record[column] is None for column in columns):
            raise ZooError(f"{where} is cut short: it lacks a column.")
        rows.append((where, record))
    return rows


def _names(where: str, target: Any, e3: Any) -> tuple[str, str]:
    """Both proteins, by their accessions.

    Raises:
        ZooError: If one is empty or unknown.
    """
    for kind, text in (("target", target), ("E3 ligase", e3)):
        if not str(text or "").strip():
            raise ZooError(f"{where}: the {kind} is empty.")
    return find_protein(str(target), where=where), find_ligase(str(e3), where=where)


def _stem(path: Any) -> str:
    """``ligase_pocket/CRBN_Q96SW2.pdb`` is Q96SW2."""
    return Path(str(path)).name.rsplit(".", 1)[0].rsplit("_", 1)[-1]
