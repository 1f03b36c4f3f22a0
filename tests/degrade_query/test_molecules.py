"""Molecules and proteins by the names that people use."""

import numpy as np
import pytest
import torch

from tests.degrade_query.case import DEGRADER, SMILES
from zoo.errors import ZooError
from zoo.molecules import ATOM_SIZES, featurize, parse_smiles
from zoo.proteins import find_ligase, find_protein, gene_name, pack_names, unpack_names


@pytest.mark.parametrize(
    ("smiles", "position", "reason"),
    [
        ("CC(=O", 3, "never closed"),
        ("CC)O", 3, "closes nothing"),
        ("C1CC", 2, "ring is never closed"),
        ("[13CH3]C%12CC", 9, "ring is never closed"),
        ("CC(C)(C)(C)C", 2, "valence"),
        ("CXC", 2, "syntax"),
        ("CC C", 3, "white space"),
        ("c1ccccc1c1cccn1", 9, "kekulize"),
        ("ClCC(Br)(C)(F)C", 4, "valence"),  # two-letter elements are one atom
    ],
)
def test_a_wrong_smiles_says_where(smiles, position, reason):
    with pytest.raises(ZooError, match=rf"Row 7: .*at position {position}: .*{reason}"):
        parse_smiles(smiles, "Row 7")


def test_an_empty_smiles_and_a_giant_one():
    with pytest.raises(ZooError, match="it is empty"):
        parse_smiles("  ")
    _, wrong = featurize(["CCO", "C" * 300])
    assert list(wrong) == [1]
    assert "300 heavy atoms: at most 256" in str(wrong[1])


def test_keys_join_stereoisomers_and_salts_and_nothing_else():
    table, wrong = featurize(["C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O", "CC(N)C(=O)O.Cl", "CCO"])
    assert not wrong
    assert table.keys[0] == table.keys[1] == table.keys[2] != table.keys[3]
    assert table.canonical[0] != table.canonical[1]
    assert table.scaffolds[3] == table.keys[3]  # no ring


def test_categories_fit_their_embeddings_and_places_are_those_of_murcko():
    table, _ = featurize([*SMILES, "O=C(CCc1ccccc1)NCc1ccncc1", "[Na+].[O-]S(=O)(=O)c1ccccc1I"])
    assert (table.atoms < np.array(ATOM_SIZES)).all()
    rows = slice(table.atom_ptr[6], table.atom_ptr[7])
    assert table.atoms[rows, 7].tolist() == [0, 1, 1, 1, *[2] * 6, 1, 1, *[2] * 6]


def test_a_batch_is_what_its_molecules_are_alone():
    table, _ = featurize(SMILES)
    rows = np.array([4, 0, 4])
    batch = table.batch(rows)
    ends, atoms = [], []
    for i, row in enumerate(rows):
        one = table.batch(np.array([row]))
        assert torch.equal(batch["fp"][i], one["fp"][0])
        atoms.append(one["atoms"])
        ends.append(one["bonds"] + torch.tensor([1, 1, 0]) * batch["ptr"][i])
    assert torch.equal(batch["atoms"], torch.cat(atoms))
    found = {tuple(b) for b in batch["bonds"].tolist()}
    assert found == {tuple(b) for b in torch.cat(ends).tolist()}
    assert {(b, a, k) for a, b, k in found} == found  # both directions


def test_features_are_kept_by_content_and_a_damaged_file_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path))
    given = [*SMILES, "CC(=O"]
    first, wrong = featurize(given, cache=True)
    (path,) = (tmp_path / "molecules").iterdir()
    again, still_wrong = featurize(given, cache=True)
    for name, value in vars(first).items():
        assert np.array_equal(value, getattr(again, name)), name
    assert {k: str(v) for k, v in wrong.items()} == {k: str(v) for k, v in still_wrong.items()}
    path.write_bytes(path.read_bytes()[:100])
    repaired, _ = featurize(given, cache=True)
    assert np.array_equal(repaired.counts, first.counts)
    featurize(given[:-1], cache=True)
    assert len(list((tmp_path / "molecules").iterdir())) == 2


def test_names_of_targets_and_ligases():
    assert find_protein("BRD4") == find_protein("brd-4") == find_protein(" O60885 ") == "O60885"
    assert find_protein("P01116/SOS1") == "P01116/Q07889"
    assert find_ligase("crbn") == find_ligase("Cereblon") == "Q96SW2"
    assert find_ligase("other") == "Other"
    assert gene_name("P01116/Q07889") == "KRAS/SOS1"
    assert gene_name("Q0") == "Q0"
    with pytest.raises(ZooError, match="Did you mean 'BRD4'"):
        find_protein("BRRD4")
    with pytest.raises(ZooError, match="Did you mean 'VHL'"):
        find_ligase("VHLL")
    names = ["", "Q96SW2", "P01116/Q07889"]
    assert unpack_names(pack_names(names)) == names
    with pytest.raises(ZooError, match="more than 32 bytes"):
        pack_names(["/".join(["P01116"] * 5)])


def test_a_large_degrader_has_its_atoms_in_the_order_of_the_string():
    table, _ = featurize([DEGRADER])
    symbols = [c for c in DEGRADER if c.isalpha()]
    oxygen = [i for i, c in enumerate(symbols) if c in "Oo"]
    assert np.flatnonzero(table.atoms[:, 0] == 3).tolist() == oxygen
