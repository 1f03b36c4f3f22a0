"""Proteins by the names that people use: UniProt accessions, gene names, E3 ligases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zoo.errors import ZooError, did_you_mean

ACCESSION = re.compile(
    r"([OPQ][0-9][A-Z0-9]{3}[0-9]|[A-NR-Z][0-9]([A-Z][A-Z0-9]{2}[0-9]){1,2})(-\d+)?"
)
MAX_NAME = 32  # bytes

E3_LIGASES = {
    "CRBN": "Q96SW2",
    "CEREBLON": "Q96SW2",
    "VHL": "P40337",
    "CIAP1": "Q13490",
    "BIRC2": "Q13490",
    "CIAP2": "Q13489",
    "BIRC3": "Q13489",
    "XIAP": "P98170",
    "BIRC4": "P98170",
    "MDM2": "Q00987",
    "DCAF1": "Q9Y4B6",
    "DCAF15": "Q66K64",
    "DCAF16": "Q9NXF7",
    "DCAF11": "Q8TEB1",
    "KEAP1": "Q14145",
    "RNF114": "Q9Y508",
    "RNF4": "P78317",
    "FEM1B": "Q9UK73",
    "KLHL20": "Q9Y2M5",
    "AHR": "P35869",
}
OTHER_E3 = "Other"  # a bag of rare ligases in the public tables

TARGETS = {
    "ABL1": "P00519", "AKT1": "P31749", "AKT2": "P31751", "AKT3": "Q9Y243", "ALK": "Q9UM73",
    "AR": "P10275", "AURKA": "O14965", "AURKB": "Q96GD4", "BCL2": "P10415", "BCL2L1": "Q07817",
    "BCL6": "P41182", "BCLXL": "Q07817", "BRAF": "P15056", "BRD2": "P25440", "BRD3": "Q15059",
    "BRD4": "O60885", "BRD7": "Q9NPI1", "BRD9": "Q9H8M2", "BTK": "Q06187", "CARM1": "Q86X55",
    "CDK12": "Q9NYV4", "CDK13": "Q14004", "CDK2": "P24941", "CDK4": "P11802", "CDK6": "Q00534",
    "CDK8": "P49336", "CDK9": "P50750", "CHEK1": "O14757", "CREBBP": "Q92793", "EED": "O75530",
    "EGFR": "P00533", "EP300": "Q09472", "ERBB2": "P04626", "ESR1": "P03372", "ERA": "P03372",
    "EZH2": "Q15910", "FAK": "Q05397", "FGFR1": "P11362", "FGFR2": "P21802", "FLT3": "P36888",
    "GPX4": "P36969", "GSPT1": "P15170", "HDAC1": "Q13547", "HDAC2": "Q92769", "HDAC3": "O15379",
    "HDAC6": "Q9UBN7", "HDAC8": "Q9BY41", "HER2": "P04626", "HPK1": "Q92918", "IDO1": "P14902",
    "IGF1R": "P08069", "IKZF1": "Q13422", "IKZF3": "Q9UKT9", "IRAK4": "Q9NWZ3", "JAK1": "P23458",
    "JAK2": "O60674", "KRAS": "P01116", "LRRK2": "Q5S007", "MAP2K1": "Q02750",
    "MAP2K2": "P36507", "MAP4K1": "Q92918", "MAPK14": "Q16539", "MAPT": "P10636",
    "MCL1": "Q07820", "MET": "P08581", "NAMPT": "P43490", "NTRK1": "P04629", "P300": "Q09472",
    "PARP1": "P09874", "PBRM1": "Q86U86", "PIK3CA": "P42336", "PLK1": "P53350",
    "PRMT5": "O14744", "PTK2": "Q05397", "PTPN1": "P18031", "PTPN11": "Q06124",
    "PTPN2": "P17706", "RIPK1": "Q13546", "RIPK2": "O43353", "SHP2": "Q06124",
    "SMARCA2": "P51531", "SMARCA4": "P51532", "SOS1": "Q07889", "SRC": "P12931",
    "STAT3": "P40763", "STAT5A": "P42229", "STAT5B": "P51692", "TAU": "P10636", "TBK1": "Q9UHD2",
    "TGFBR1": "P36897", "TP53": "P04637", "TYK2": "P29597", "WDR5": "P61964", "WEE1": "P30291",
}  # fmt: skip


def find_protein(name: str, known: Iterable[str] = (), where: str = "") -> str:
    """UniProt accession of a target.

    Args:
        name: Accession, gene name of ``TARGETS`` or ``E3_LIGASES``, or accessions of several
            proteins that are degraded together, "A/B".
        known: Further names that stand for themselves.
        where: Said first in an error.

    Raises:
        ZooError: If it is none of these; it names the nearest.
    """
    text = name.strip()
    if text in set(known):
        return text
    parts = []
    for part in text.upper().split("/"):
        word = re.sub(r"[\s-]", "", part) if not ACCESSION.fullmatch(part) else part
        found = TARGETS.get(word) or E3_LIGASES.get(word) or word
        if not ACCESSION.fullmatch(found):
            start = f"{where}: " if where else ""
            hint = did_you_mean(text.upper(), [*TARGETS, *E3_LIGASES, *known])
            raise ZooError(
                f"{start}target {name!r} is no UniProt accession and no gene name that is known "
                f"here.{hint}"
            )
        parts.append(found)
    return "/".join(parts)


def find_ligase(name: str, known: Iterable[str] = (), where: str = "") -> str:
    """UniProt accession of an E3 ligase; "Other" for itself.

    Args:
        name: Accession, or a name of ``E3_LIGASES``.
        known: Further names that stand for themselves.
        where: Said first in an error.

    Raises:
        ZooError: If it is none of these; it names the nearest.
    """
    text = name.strip()
    if text in set(known):
        return text
    if text.upper() == OTHER_E3.upper():
        return OTHER_E3
    if ACCESSION.fullmatch(text.upper()):
        return text.upper()
    word = re.sub(r"[\s-]", "", text.upper())
    if word not in E3_LIGASES:
        start = f"{where}: " if where else ""
        raise ZooError(
            f"{start}E3 ligase {name!r} is unknown: expected a UniProt accession, {OTHER_E3}, or "
            f"one of {', '.join(E3_LIGASES)}.{did_you_mean(word, [*E3_LIGASES, OTHER_E3])}"
        )
    return E3_LIGASES[word]


def gene_name(accession: str) -> str:
    """The usual name of a protein; the accession where none is known here."""
    names = {value: key for key, value in reversed([*E3_LIGASES.items(), *TARGETS.items()])}
    return "/".join(names.get(part, part) for part in accession.split("/"))


@dataclass(frozen=True)
class ProteinFeatures:
    """A feature vector for each of some proteins.

    Attributes:
        width: P.
        by_name: From accession to float32 vector. Shape of each: (P,).
    """

    width: int
    by_name: Mapping[str, NDArray[np.float32]]

    def of(self, name: str) -> NDArray[np.float32]:
        """Mean over the proteins of a name; zeros if none of them is known. Shape: (P,)."""
        found = [self.by_name[part] for part in name.split("/") if part in self.by_name]
        return np.mean(found, axis=0) if found else np.zeros(self.width, np.float32)


def read_features(path: str | Path, width: int | None = None) -> ProteinFeatures:
    """Reads ``uniprot`` (N,) and ``features`` (N, P) of an ``.npz``.

    Args:
        path: The file.
        width: The P that is asked for; ``None`` for any.

    Raises:
        ZooError: If the file is missing, broken or holds other arrays, shapes or values.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise ZooError(f"{path} is no file: expected protein features as .npz.")
    try:
        with np.load(path, allow_pickle=False) as stored:
            names, features = stored["uniprot"], stored["features"]
    except Exception as error:  # zipfile and numpy raise whatever they meet
        raise ZooError(
            f"{path} is no .npz of protein features with the arrays 'uniprot' and 'features': "
            f"{error}"
        ) from error
    if features.ndim != 2 or names.shape != features.shape[:1]:
        raise ZooError(
            f"{path}: 'uniprot' has the shape {names.shape} and 'features' {features.shape}: "
            "expected (N,) and (N, P)."
        )
    if width is not None and features.shape[1] != width:
        raise ZooError(
            f"{path}: features are {features.shape[1]} numbers a protein, but {width} are expected "
            "(protein_dim)."
        )
    if not np.isfinite(features).all():
        row = int((~np.isfinite(features)).any(axis=1).argmax())
        raise ZooError(f"{path}: the features of {names[row]} are not finite.")
    values = features.astype(np.float32)
    return ProteinFeatures(values.shape[1], dict(zip(map(str, names), values, strict=True)))


def pack_names(names: Sequence[str]) -> Tensor:
    """Names as bytes, so that they can be stored beside weights. Shape: (N, 32), uint8.

    Raises:
        ZooError: If one is too long.
    """
    packed = torch.zeros(len(names), MAX_NAME, dtype=torch.uint8)
    for i, name in enumerate(names):
        data = name.encode()
        if len(data) > MAX_NAME:
            raise ZooError(f"The protein name {name!r} has more than {MAX_NAME} bytes.")
        packed[i, : len(data)] = torch.tensor(list(data), dtype=torch.uint8)
    return packed


def unpack_names(packed: Tensor) -> list[str]:
    """The inverse of :func:`pack_names`."""
    return [bytes(row.tolist()).rstrip(b"\0").decode() for row in packed.cpu()]
