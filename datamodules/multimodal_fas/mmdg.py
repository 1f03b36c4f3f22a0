"""Index files of the MMDG benchmark: ``MMDG-Benchmark/{C,P,S,W}-{train,val,test}.txt``.

A line of C, S and W is ``<rgb> <depth> <ir> <label>`` with paths relative to the root; one of P is
``<name>.npz<TAB><label>``. Source: arXiv 2402.19298 and the lists published with it. The images
need the licences of CASIA-CeFA, PADISI-USC-Face, CASIA-SURF and WMCA.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zoo.errors import ZooError
from zoo.face_files import MODALITIES

from .sources import Entry

FOLDER = "MMDG-Benchmark"
TREE = f"""\
ROOT/
  {FOLDER}/C-train.txt, C-val.txt, C-test.txt, and the same of P, S and W
  the images, where the lines of these lists say"""


def read_index(root: Path, domain: str, split: str, live_label: int) -> list[Entry]:
    """Reads one list, and looks whether its files exist.

    Args:
        root: Holds the folder of lists; paths in them are relative to it.
        domain: C, P, S or W.
        split: "train", "val" or "test".
        live_label: The label of live faces in the lists: 1 in those of MMDG, 0 in some others.

    Raises:
        ZooError: If the list is missing or empty, a line has the wrong number of fields or a label
            other than 0 and 1, or files are missing; it names file and line.
    """
    path = root / FOLDER / f"{domain}-{split}.txt"
    if not path.is_file():
        raise ZooError(f"There is no {path}; expected\n{TREE}")
    entries = [
        _entry(line, path, number, root, domain, live_label)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if line.strip()
    ]
    if not entries:
        raise ZooError(f"{path} has no line.")
    missing = [file for entry in entries for file in entry.files.values() if not file.is_file()]
    if missing:
        first = ", ".join(str(file) for file in missing[:5])
        raise ZooError(f"{path} names {len(missing)} files that do not exist, first {first}.")
    return entries


def check_leak(training: Sequence[Entry], held_out: Sequence[Entry], split: str) -> None:
    """Raises a ZooError if a file of ``held_out`` is trained on."""
    known = {file for entry in training for file in entry.files.values()}
    shared = [file for entry in held_out for file in entry.files.values() if file in known]
    if shared:
        raise ZooError(
            f"{len(shared)} files of the {split} lists are in the training lists, too, "
            f"first {shared[0]}: the splits must not share captures."
        )


def _entry(line: str, path: Path, number: int, root: Path, domain: str, live_label: int) -> Entry:
    fields = line.split("\t") if domain == "P" else line.split()
    wanted = 2 if domain == "P" else 4
    if len(fields) != wanted:
        form = "<name>.npz<TAB><label>" if domain == "P" else "<rgb> <depth> <ir> <label>"
        raise ZooError(f"{path}, line {number}: expected '{form}', found {len(fields)} fields.")
    label = fields[-1].strip()
    if label not in ("0", "1"):
        raise ZooError(f"{path}, line {number}: the label {label!r} is neither 0 nor 1.")
    names = ("npz",) if domain == "P" else MODALITIES
    files = {name: root / field.strip() for name, field in zip(names, fields[:-1], strict=True)}
    name = f"{domain}-{path.stem.partition('-')[2]}-{number:05d}"
    return Entry(name, domain, int(int(label) == live_label), files)
