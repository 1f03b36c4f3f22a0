"""Molecules from SMILES: checked, and turned into fingerprints and graphs; needs RDKit."""

from zoo.molecules.features import (
    ATOM_SIZES,
    BOND_SIZES,
    FINGERPRINT_BITS,
    MoleculeTable,
    featurize,
)
from zoo.molecules.smiles import parse_smiles

__all__ = [
    "ATOM_SIZES",
    "BOND_SIZES",
    "FINGERPRINT_BITS",
    "MoleculeTable",
    "featurize",
    "parse_smiles",
]
