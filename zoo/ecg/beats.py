"""Beat classes of ANSI/AAMI EC57, and the inter-patient split of the MIT-BIH database."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from zoo.errors import ZooError

CLASSES = ("N", "S", "V", "F", "Q")
MEANING = {
    "N": "normal or bundle branch block",
    "S": "supraventricular ectopic",
    "V": "ventricular ectopic",
    "F": "fusion of N and V",
    "Q": "paced or unknown",
}
#: MIT-BIH beat symbols of each class; any other symbol is no beat (rhythm, noise, flutter waves).
SYMBOLS = {"N": "NLRejBn", "S": "AaJS", "V": "VEr", "F": "F", "Q": "/fQ?"}
AAMI = {s: CLASSES.index(c) for c, symbols in SYMBOLS.items() for s in symbols}
#: The symbol that a class is written as.
WRITTEN = {"N": "N", "S": "S", "V": "V", "F": "F", "Q": "Q"}

# fmt: off
#: De Chazal et al., IEEE Trans. Biomed. Eng. 51(7), 2004: training and test records.
DS1 = (
    "101", "106", "108", "109", "112", "114", "115", "116", "118", "119", "122",
    "124", "201", "203", "205", "207", "208", "209", "215", "220", "223", "230",
)
DS2 = (
    "100", "103", "105", "111", "113", "117", "121", "123", "200", "202", "210",
    "212", "213", "214", "219", "221", "222", "228", "231", "232", "233", "234",
)
# fmt: on
PACED = ("102", "104", "107", "217")
SAME_PERSON = {"202": "201"}
#: Of DS1, whole patients; they have all of N, S, V and F, and leave most of F (208) to training.
VALIDATION = ("114", "118", "207", "223")


def to_classes(symbols: Sequence[str]) -> NDArray[np.int64]:
    """Class index of each annotation symbol, -1 where it marks no beat. Shape: (n,)."""
    return np.array([AAMI.get(symbol, -1) for symbol in symbols], dtype=np.int64)


def patient_of(record: str) -> str:
    """The patient of a record: 201 and 202 of MIT-BIH are one; an excerpt has its record's."""
    name = record.split("_")[0]
    return SAME_PERSON.get(name, name)


def check_splits(splits: Mapping[str, Collection[str]]) -> None:
    """Refuses paced records, and patients who are in two splits.

    Args:
        splits: Names of records by split.

    Raises:
        ZooError: Naming the record and the splits.
    """
    seen: dict[str, tuple[str, str]] = {}
    for split, records in splits.items():
        for record in records:
            if record.split("_")[0] in PACED:
                raise ZooError(
                    f"Record {record} of the {split} split is paced: the AAMI protocol leaves out "
                    f"{', '.join(PACED)}."
                )
            patient = patient_of(record)
            before = seen.setdefault(patient, (split, record))
            if before[0] != split:
                same = record if record == before[1] else f"{before[1]} and {record}, one person,"
                verb = "is" if record == before[1] else "are"
                raise ZooError(
                    f"Record {same} {verb} in both the {before[0]} and the {split} split: "
                    "a patient belongs to one."
                )
