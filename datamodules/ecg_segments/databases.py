"""Databases without a published split: patients are drawn to splits by a hash of their name.

What a patient is drawn to depends on database and patient alone: not on a seed, on the machine, or
on which other records are there. So part of a database never trains on what the whole one tests.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from zoo.ecg.vitaldb import vitaldb_cases, vitaldb_persons
from zoo.errors import ZooError

SHARES = (("train", 0.6), ("val", 0.2), ("test", 0.2))  # of the patients, as expected values
PATIENT = re.compile(r"\bpatient\s*(?:no\.?|number|#|:)?\s*(\d+)", re.IGNORECASE)


def drawn_split(database: str, patient: str) -> str:
    """The split of a patient, by SHA-256 of "database:patient"."""
    digest = hashlib.sha256(f"{database}:{patient}".encode()).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    for split, share in SHARES:
        if place < share:
            return split
        place -= share
    return SHARES[-1][0]


def _records(root: Path, name: str) -> list[str]:
    return sorted(p.stem for p in root.glob("*.hea") if re.fullmatch(name, p.stem))


def _svdb(root: Path) -> dict[str, str]:
    """Nothing is published on who is who: each record counts as a patient."""
    return {name: name for name in _records(root, r"8\d\d")}


def _incartdb(root: Path) -> dict[str, str]:
    """The patient that a comment of the header names, as in ``# patient 12``.

    Raises:
        ZooError: If a header names none, or several.
    """
    patients = {}
    for name in _records(root, r"I\d\d"):
        lines = (root / f"{name}.hea").read_text(encoding="utf-8", errors="replace").splitlines()
        comments = [line for line in lines if line.startswith("#")]
        found = {int(number) for line in comments for number in PATIENT.findall(line)}
        if len(found) != 1:
            raise ZooError(
                f"{root / name}.hea names {len(found)} patients in its comments, expected one, as "
                "'# patient 12': without it two records of a person could be in two splits. Use "
                "source='wfdb' with splits."
            )
        patients[name] = f"patient {found.pop()}"
    return patients


def _vitaldb(root: Path) -> dict[str, str]:
    """``subjectid`` of clinical_data.csv if it is there, else each case counts as a patient."""
    return vitaldb_persons(root, vitaldb_cases(root))


@dataclass(frozen=True)
class Database:
    """A database of PhysioNet.

    Attributes:
        title: For results.
        patients: Finds the records of a folder, and the patient of each.
        layout: What is expected there.
        size: Records that are published; ``None`` where a part is what most have.
        leads: That are read unless others are asked for; ``None`` for the first.
    """

    title: str
    patients: Callable[[Path], dict[str, str]]
    layout: str
    size: int | None = None
    leads: tuple[str, str] | None = None


DATABASES: Mapping[str, Database] = {
    "svdb": Database("MIT-BIH Supraventricular", _svdb, "800.hea, 800.dat and 800.atr", 78),
    "incartdb": Database("INCART", _incartdb, "I01.hea, I01.dat and I01.atr", 75, ("II", "V1")),
    "vitaldb": Database("VitalDB Arrhythmia", _vitaldb, "CASE.csv and Annotation_file_CASE.csv"),
}


def database_patients(name: str, root: Path) -> dict[str, str]:
    """Records in ``root`` and their patients; warns if the database has more of them.

    Raises:
        ZooError: If there is none.
    """
    database = DATABASES[name]
    patients = database.patients(root)
    if not patients:
        raise ZooError(f"{root} has no record of {name}: expected {database.layout}, and so on.")
    if database.size is not None and len(patients) < database.size:
        warnings.warn(
            f"{root} has {len(patients)} of the {database.size} records of {name}: they stay in "
            "their splits, but results are not those of the database.",
            stacklevel=2,
        )
    return patients


def database_split(name: str, patients: Mapping[str, str], split: str) -> list[str]:
    """Records of the split.

    Raises:
        ZooError: If there is none.
    """
    records = [r for r, patient in patients.items() if drawn_split(name, patient) == split]
    if not records:
        raise ZooError(
            f"None of the {len(set(patients.values()))} patients of {name} that are there is in "
            f"the {split} split, which a hash of their names decides: add records, or use "
            "source='wfdb' with splits."
        )
    return records
