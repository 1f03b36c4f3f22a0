"""Fingerprints and graphs of many molecules in flat arrays, computed once and kept on disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zoo.atomic import atomic_path
from zoo.errors import ZooError
from zoo.molecules.smiles import parse_smiles, rdkit_chem

VERSION = 1  # of the features, part of the cache's key
MORGAN_BITS, MACCS_BITS, MAX_COUNT = 2048, 167, 4
FINGERPRINT_BITS = MORGAN_BITS + MACCS_BITS
MAX_ATOMS = 256  # heavy atoms; PROTACs have 50 to 90
ELEMENTS = (6, 7, 8, 9, 15, 16, 17, 35, 53, 5, 14, 34)  # category 0 is any other
# Categories of each atom feature: element, degree, charge, hydrogens, hybridisation, aromatic,
# R/S, and the place in the molecule (side chain, linker between rings, ring).
ATOM_SIZES = (len(ELEMENTS) + 1, 7, 5, 5, 6, 2, 3, 3)
BOND_SIZES = 4  # single, double, triple, aromatic
POOL_FROM = 500  # fewer molecules are not worth the start of processes
CHUNK = 250


@dataclass(frozen=True)
class MoleculeTable:
    """Features of N molecules.

    Attributes:
        counts: Morgan counts of radius 2, capped at 4, then MACCS keys; uint8. Shape: (N, 2215).
        atoms: Categories, see ``ATOM_SIZES``; uint8. Shape: (all atoms, 8).
        bonds: Both ends, from 0 in each molecule, and kind; int32. Shape: (all bonds, 3).
        atom_ptr: Molecule i has the atoms ``atom_ptr[i]`` to ``atom_ptr[i + 1]``. Shape: (N + 1,).
        bond_ptr: The same for bonds.
        keys: First block of the InChIKey of the largest fragment: the same for stereo-isomers and
            salts. Shape: (N,).
        scaffolds: Bemis-Murcko scaffold as SMILES; the key where there is no ring. Shape: (N,).
        canonical: Canonical SMILES with stereochemistry. Shape: (N,).
        language: A language model's features, float32, if there is one. Shape: (N, L).
    """

    counts: NDArray[np.uint8]
    atoms: NDArray[np.uint8]
    bonds: NDArray[np.int32]
    atom_ptr: NDArray[np.int64]
    bond_ptr: NDArray[np.int64]
    keys: NDArray[np.str_]
    scaffolds: NDArray[np.str_]
    canonical: NDArray[np.str_]
    language: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.counts)

    def batch(self, rows: NDArray[np.int64]) -> dict[str, Tensor]:
        """Collates molecules.

        Args:
            rows: Which. Shape: (B,).

        Returns:
            ``fp``, log(1 + count), float32, (B, 2215); ``atoms``, long, (A, 8); ``bonds``, both
            directions, with ends that count through the batch, long, (2 E, 3); ``ptr``, long,
            (B + 1,); and ``language``, (B, L), if there is one.
        """
        fp = np.log1p(np.arange(MAX_COUNT + 1, dtype=np.float32))[self.counts[rows]]
        atoms, ptr = _ragged(self.atom_ptr, rows)
        bonds, bond_ptr = _ragged(self.bond_ptr, rows)
        one = self.bonds[bonds].astype(np.int64)  # (E, 3)
        one[:, :2] += np.repeat(ptr[:-1], np.diff(bond_ptr))[:, None]
        both = np.concatenate([one, one[:, [1, 0, 2]]])
        language = {}
        if self.language is not None:
            language = {"language": torch.from_numpy(self.language[rows])}
        return {
            **language,
            "fp": torch.from_numpy(fp),
            "atoms": torch.from_numpy(self.atoms[atoms].astype(np.int64)),
            "bonds": torch.from_numpy(both),
            "ptr": torch.from_numpy(ptr),
        }


def _ragged(
    ptr: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Flat indices of the chosen rows' elements, and the new pointers."""
    lengths = ptr[rows + 1] - ptr[rows]
    new = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
    return np.repeat(ptr[rows] - new[:-1], lengths) + np.arange(new[-1]), new


def featurize(
    smiles: Sequence[str], cache: bool = False
) -> tuple[MoleculeTable, dict[int, ZooError]]:
    """Features of many molecules.

    Args:
        smiles: One string each.
        cache: Keep the result in ``$ZOO_CACHE/molecules`` (``~/.cache/lightning-zoo`` by default)
            under the hash of the strings, and take it from there.

    Returns:
        The table, with a row of zeros and no atoms where a SMILES is wrong; and what is wrong with
        each such row.
    """
    chem = rdkit_chem()
    key = hashlib.sha256()
    key.update(f"{VERSION} {chem.rdBase.rdkitVersion}\n".encode())
    key.update("\n".join(smiles).encode())
    path = cache_folder() / f"{key.hexdigest()[:24]}.npz"
    if cache and path.is_file():
        found = _read(path)
        if found is not None:
            return found
    chunks = [smiles[i : i + CHUNK] for i in range(0, len(smiles), CHUNK)]
    workers = min(len(os.sched_getaffinity(0)), 16) if hasattr(os, "sched_getaffinity") else 1
    if cache and len(smiles) >= POOL_FROM and workers > 1:
        # Fork would copy torch's threads' locks.
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            parts = list(pool.map(_describe_all, chunks))
    else:
        parts = [_describe_all(chunk) for chunk in chunks]
    rows = [row for part in parts for row in part]
    errors = {i: ZooError(row) for i, row in enumerate(rows) if isinstance(row, str)}
    table = _stack([_EMPTY if isinstance(row, str) else row for row in rows])
    if cache:
        bad = np.array(sorted(errors), dtype=np.int64)
        reasons = np.array([str(errors[int(i)]) for i in bad], dtype=np.str_)
        with atomic_path(path) as temporary:
            kept = {k: v for k, v in vars(table).items() if v is not None}
            np.savez_compressed(temporary, bad=bad, reasons=reasons, **kept)
    return table, errors


def cache_folder() -> Path:
    """Where features are kept."""
    root = os.environ.get("ZOO_CACHE") or "~/.cache/lightning-zoo"
    return Path(root).expanduser() / "molecules"


def _read(path: Path) -> tuple[MoleculeTable, dict[int, ZooError]] | None:
    """A kept table; ``None`` if the file is damaged, which is then made anew."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = dict(stored)
        bad, reasons = arrays.pop("bad"), arrays.pop("reasons")
        errors = {int(i): ZooError(str(r)) for i, r in zip(bad, reasons, strict=True)}
        return MoleculeTable(**arrays), errors
    except Exception:  # zipfile, zlib and numpy raise whatever they meet
        return None


# -- one molecule ------------------------------------------------------------------------------

Row = tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int32], str, str, str]
_EMPTY: Row = (
    np.zeros(FINGERPRINT_BITS, np.uint8),
    np.zeros((0, len(ATOM_SIZES)), np.uint8),
    np.zeros((0, 3), np.int32),
    "",
    "",
    "",
)


def _describe_all(smiles: Sequence[str]) -> list[Row | str]:
    """Each molecule's features, or what is wrong with it; runs in a process of its own."""
    from rdkit import rdBase
    from rdkit.Chem import rdFingerprintGenerator

    morgan = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=MORGAN_BITS)
    found: list[Row | str] = []
    with rdBase.BlockLogs():  # InChI warns about most large molecules
        for one in smiles:
            try:
                found.append(_describe(one, morgan))
            except ZooError as error:  # noqa: PERF203  (each may be wrong by itself)
                found.append(str(error))
    return found


def _describe(smiles: str, morgan: Any) -> Row:
    from rdkit.Chem import rdMolDescriptors
    from rdkit.Chem.Scaffolds import MurckoScaffold

    chem, murcko = rdkit_chem(), cast("Any", MurckoScaffold)  # parts of RDKit have no types
    mol = parse_smiles(smiles)
    if mol.GetNumHeavyAtoms() > MAX_ATOMS:
        raise ZooError(
            f"SMILES '{smiles[:40]}…' has {mol.GetNumHeavyAtoms()} heavy atoms: at most "
            f"{MAX_ATOMS} are allowed."
        )
    counts = np.zeros(FINGERPRINT_BITS, np.uint8)
    counts[:MORGAN_BITS] = morgan.GetCountFingerprintAsNumPy(mol).clip(max=MAX_COUNT)
    counts[MORGAN_BITS + np.array(rdMolDescriptors.GetMACCSKeysFingerprint(mol).GetOnBits())] = 1
    bonds = np.array(
        [(b.GetBeginAtomIdx(), b.GetEndAtomIdx(), _bond(b)) for b in mol.GetBonds()], np.int32
    ).reshape(-1, 3)
    place = _places(mol.GetNumAtoms(), bonds, [a.IsInRing() for a in mol.GetAtoms()])
    atoms = np.array([_atom(a) for a in mol.GetAtoms()], np.uint8)
    atoms = np.concatenate([atoms, place[:, None]], axis=1)
    parent = mol
    if "." in smiles:
        parent = max(chem.GetMolFrags(mol, asMols=True), key=lambda m: m.GetNumHeavyAtoms())
    key = chem.MolToInchiKey(parent)[:14] or chem.MolToSmiles(parent, isomericSmiles=False)
    scaffold = murcko.MurckoScaffoldSmiles(mol=parent) or key
    return counts, atoms, bonds, key, scaffold, chem.MolToSmiles(mol)


def _bond(bond: Any) -> int:
    if bond.GetIsAromatic():
        return 3
    return int(min(max(round(bond.GetBondTypeAsDouble()), 1), 3)) - 1


def _atom(atom: Any) -> tuple[int, ...]:
    number = atom.GetAtomicNum()
    # R and S, not the tags @ and @@, which depend on the order of the atoms.
    label = atom.GetProp("_CIPCode") if atom.HasProp("_CIPCode") else ""
    return (
        ELEMENTS.index(number) + 1 if number in ELEMENTS else 0,
        min(atom.GetDegree(), 6),
        min(max(atom.GetFormalCharge(), -2), 2) + 2,
        min(atom.GetTotalNumHs(), 4),
        min(max(int(atom.GetHybridization()) - 1, 0), 5),
        int(atom.GetIsAromatic()),
        {"R": 1, "S": 2}.get(label, 0),
    )


def _places(count: int, bonds: NDArray[np.int32], in_ring: Sequence[bool]) -> NDArray[np.uint8]:
    """0 in a side chain, 1 in a linker, 2 in a ring: leaves fall off until none is left."""
    ring = np.array(in_ring, bool)
    kept = np.ones(count, bool)
    while True:
        inner = bonds[kept[bonds[:, 0]] & kept[bonds[:, 1]]]
        degree = np.bincount(inner[:, :2].ravel(), minlength=count)
        leaves = kept & ~ring & (degree <= 1)
        if not leaves.any():
            return np.where(ring, 2, kept.astype(np.uint8)).astype(np.uint8)
        kept &= ~leaves


def _stack(rows: Sequence[Row]) -> MoleculeTable:
    counts, atoms, bonds, keys, scaffolds, canonical = zip(*rows, strict=True)
    return MoleculeTable(
        counts=np.stack(counts),
        atoms=np.concatenate(atoms),
        bonds=np.concatenate(bonds),
        atom_ptr=np.cumsum([0, *map(len, atoms)]).astype(np.int64),
        bond_ptr=np.cumsum([0, *map(len, bonds)]).astype(np.int64),
        keys=np.array(keys, dtype=np.str_),
        scaffolds=np.array(scaffolds, dtype=np.str_),
        canonical=np.array(canonical, dtype=np.str_),
    )
