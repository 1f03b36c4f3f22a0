"""SMILES strings, and where in the string a wrong one is wrong."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from zoo.errors import ZooError, missing_extra

if TYPE_CHECKING:
    from rdkit.Chem import Mol

ATOM = re.compile(r"\[[^\]]*\]|Br|Cl|[BCNOPSFI*]|[bcnops]")
RING = re.compile(r"\[[^\]]*\]|%\d\d|\d")
SHOWN = 24  # characters of a long SMILES around the place


def rdkit_chem() -> Any:
    """The module ``rdkit.Chem``.

    Raises:
        ZooError: If RDKit is not installed.
    """
    try:
        from rdkit import Chem
    except ImportError as error:
        raise missing_extra("rdkit", "chem") from error
    return Chem


def parse_smiles(smiles: str, where: str = "") -> Mol:
    """Reads one SMILES string.

    Args:
        smiles: The string; white space around it is dropped.
        where: Said first in an error, for instance "Row 3 of a.csv".

    Raises:
        ZooError: If it is no molecule; it names the position, from 1, in the string.
    """
    chem = rdkit_chem()
    from rdkit import rdBase

    smiles = smiles.strip()
    with rdBase.BlockLogs():
        clean = smiles and not re.search(r"\s", smiles)
        mol: Mol | None = chem.MolFromSmiles(smiles) if clean else None
    if mol is not None and mol.GetNumAtoms() > 0:
        return mol
    position, reason = _diagnose(smiles)
    start = f"{where}: " if where else ""
    if position is None:
        raise ZooError(f"{start}SMILES {smiles!r} is no molecule: {reason}.")
    raise ZooError(
        f"{start}SMILES {_around(smiles, position)} is wrong at position {position}: {reason}."
    )


def _around(smiles: str, position: int) -> str:
    """The string, shortened around a position from 1, with that character marked."""
    first, last = max(position - 1 - SHOWN, 0), position + SHOWN
    before, at, after = smiles[first : position - 1], smiles[position - 1 : position], smiles
    head = "…" if first else ""
    tail = "…" if last < len(smiles) else ""
    return f"'{head}{before}«{at}»{after[position:last]}{tail}'"


def _diagnose(smiles: str) -> tuple[int | None, str]:
    """Position from 1, if there is one, and reason."""
    if not smiles:
        return None, "it is empty"
    space = re.search(r"\s", smiles)
    if space:
        return space.start() + 1, "white space ends a SMILES"
    message = _rdkit_message(smiles)
    if "around position" in message:
        place = re.search(r"around position (\d+)", message)
        assert place is not None
        kind = "syntax error"
        for known, words in (
            ("extra open", "this '(' is never closed"),
            ("extra close", "this ')' closes nothing"),
        ):
            kind = words if known in message else kind
        return int(place[1]), kind
    if "unclosed ring" in message:
        return _open_ring(smiles), "this ring is never closed"
    chem = rdkit_chem()
    from rdkit import rdBase

    with rdBase.BlockLogs():
        mol = chem.MolFromSmiles(smiles, sanitize=False)
        problems = chem.DetectChemistryProblems(mol) if mol is not None else []
    for problem in problems:
        atoms = (
            list(problem.GetAtomIndices())
            if hasattr(problem, "GetAtomIndices")
            else [problem.GetAtomIdx()]
        )
        text = problem.Message().split("Unkekulized")[0].strip(" .\n")
        return _atom_position(smiles, min(atoms)), text
    return None, (message.splitlines() or ["it has no atoms"])[0]


def _atom_position(smiles: str, index: int) -> int | None:
    """Where the atom of this number stands: atoms are numbered in the order of the string."""
    spans = [match.start() for match in ATOM.finditer(smiles)]
    return spans[index] + 1 if index < len(spans) else None


def _open_ring(smiles: str) -> int | None:
    """Where the first ring bond that is never closed opens."""
    opened: dict[str, int] = {}
    for match in RING.finditer(smiles):
        label = match[0].lstrip("%").lstrip("0") or "0"
        if match[0].startswith("["):
            continue
        if label in opened:
            del opened[label]
        else:
            opened[label] = match.start() + 1
    return min(opened.values(), default=None)


class _Messages(logging.Handler):
    """Collects what RDKit logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the text."""
        self.lines.append(record.getMessage())


def _rdkit_message(smiles: str) -> str:
    """What RDKit says about a SMILES that it refuses: it tells no other way."""
    chem = rdkit_chem()
    from rdkit import rdBase

    logger, handler = logging.getLogger("rdkit"), _Messages()
    kept, propagate, level = logger.handlers[:], logger.propagate, logger.level
    rdBase.LogToPythonLogger()
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.DEBUG)
    try:
        chem.MolFromSmiles(smiles)
    finally:
        rdBase.LogToCppStreams()
        logger.handlers, logger.propagate = kept, propagate
        logger.setLevel(level)
    return "\n".join(handler.lines)
