"""Layouts, labels, merging and splits of tables of tuples."""

import json
import math

import numpy as np
import pytest

from tests.degrade_query.case import CASE, SMILES, TARGETS, write_table
from zoo.datamodules import ProtacTuplesDataModule
from zoo.datamodules.protac_tuples.layouts import degradation_label, parse_range, read_rows
from zoo.datamodules.protac_tuples.splits import components, hold_out, split_rows
from zoo.datamodules.protac_tuples.table import build_table
from zoo.errors import ZooError

HEADER = "Compound ID,Uniprot,Target,E3 ligase,Smiles,DC50 (nM),Dmax (%)"


def data(**changes):
    return ProtacTuplesDataModule(**{**CASE.data, **changes})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12.5", (12.5, 12.5)),
        (">10000", (10000, math.inf)),
        ("<0.1", (0, 0.1)),
        ("5/10", (5, 10)),
        ("30-100", (30, 100)),
        ("~80", (80, 80)),
        ("1,200", (1200, 1200)),
        ("", (0, math.inf)),
        ("N.D.", (0, math.inf)),
        ("≥95", (95, math.inf)),
    ],
)
def test_measurements_by_rule(text, expected):
    assert parse_range(text) == expected


def test_a_measurement_that_is_none_is_refused():
    with pytest.raises(ZooError, match="'potent' is no measurement"):
        parse_range("potent")


@pytest.mark.parametrize(
    ("dc50", "dmax", "label"),
    [
        ("100", "80", 1),
        ("<0.1", ">90", 1),
        ("101", "95", 0),
        (">100", "95", 0),
        ("5", "79", 0),
        ("5/500", "95", -1),
        ("<500", "95", -1),
        ("5", "", -1),
        ("", "", -1),
        (">50", "95", -1),
        ("5", "70-90", -1),
    ],
)
def test_labels_only_where_all_open_values_agree(dc50, dmax, label):
    assert degradation_label(parse_range(dc50), parse_range(dmax)) == label


def test_protacdb(tmp_path):
    rows = [
        f"1,O60885,BRD4,VHL,{SMILES[0]},5,95",
        f"2,Q06187,BTK,CRBN,{SMILES[1]},>10000,10",
        f"3,P10275,AR,cIAP1,{SMILES[2]},5/50,",
        "4,,X,CRBN,CCO,1,1",
    ]
    path = write_table(tmp_path / "protac.csv", rows, HEADER)
    found, errors = read_rows(path, "protacdb")
    assert [(r.target, r.e3, r.label) for r in found] == [
        ("O60885", "P40337", 1),
        ("Q06187", "Q96SW2", 0),
        ("P10275", "Q13490", -1),
    ]
    assert found[0].pdc50 == pytest.approx(9 - math.log10(5))
    assert found[0].dmax == pytest.approx(0.95)
    assert math.isnan(found[1].pdc50)
    assert "row 4: the target is empty" in str(errors[0])


def test_protac8k(tmp_path):
    entry = {
        "pro_comp_id": 7,
        "tar_path": "target_pocket/BRD4_O60885.pdb",
        "e3_ligase_path": "ligase_pocket/CRBN_Q96SW2.pdb",
        "war_path": "warhead/12.mol2",
        "smiles": SMILES[0],
        "label": -1,
    }
    wrong = {**entry, "label": 3}
    (tmp_path / "PROTAC.json").write_text(json.dumps({"c0": entry, "c1": wrong}))
    (row,), (error,) = read_rows(tmp_path, "protac8k")
    assert (row.target, row.e3, row.label, row.warhead) == ("O60885", "Q96SW2", -1, "12")
    assert "entry c1: label 3" in str(error)


def test_duplicates_are_merged_by_majority_and_conflicts_dropped(tmp_path):
    labels = {"CCO": "111", "OCC": "", "CCN": "110", "CCC": "1110"}
    rows = [f"{s},O60885,VHL,{x}" for s, many in labels.items() for x in many or [""]]
    path = write_table(tmp_path / "a.csv", rows)
    table = build_table(*read_rows(path, "tuples"), "raise", "a", cache=False)
    # OCC is CCO again, without a label; 2 of 3 are no majority of 70 %, 3 of 4 are.
    assert dict(zip(table.smiles.tolist(), table.label.tolist(), strict=True)) == {
        "CCO": 1,
        "CCC": 1,
    }


def test_bad_rows_can_be_dropped(tmp_path):
    rows = [
        f"{s},{t},{e},{i % 2}"
        for i, s in enumerate(SMILES)
        for t in TARGETS
        for e in ("CRBN", "VHL")
    ]
    path = write_table(tmp_path / "a.csv", [*rows, "CC(=O,BRD4,VHL,1", "CCO,,VHL,1"])
    table = build_table(*read_rows(path, "tuples"), "drop", "a", cache=False)
    assert len(table) == len(rows)
    with pytest.raises(ZooError, match="row 38"):
        build_table(*read_rows(path, "tuples"), "raise", "a", cache=False)


@pytest.mark.parametrize("split", ["random", "scaffold", "target_e3", "target"])
def test_no_split_shares_what_it_must_not(split):
    module = data(split=split, tuples=900, label_budget=60)
    table, rows, vocabulary = module.load()
    parts = {name: getattr(rows, name) for name in ("train", "val", "test")}
    units = {
        "random": table.keys,
        "scaffold": table.molecules.scaffolds[table.molecule],
        "target_e3": np.char.add(table.target, table.e3),
        "target": components(table.target),
    }[split]
    for a, b in (("train", "val"), ("train", "test"), ("val", "test")):
        for column in (units, table.keys):
            assert not set(column[parts[a]]) & set(column[parts[b]])
        if split == "target":  # "A/B" shares a protein with "A"
            proteins = [{p for t in table.target[parts[x]] for p in t.split("/")} for x in (a, b)]
            assert not proteins[0] & proteins[1]
    assert len(rows.labelled) == 60
    together = np.concatenate([*parts.values(), rows.dropped])
    assert sorted(together.tolist()) == list(range(len(table)))
    assert int(vocabulary["labels"].sum()) == 60
    assert int(vocabulary["target_count"].sum()) == len(rows.train)
    again = data(split=split, tuples=900, label_budget=60).load()[1]
    assert np.array_equal(again.test, rows.test)


def test_a_large_group_is_never_held_out():
    groups = np.array(["large"] * 60 + [f"g{i}" for i in range(40)])
    for seed in range(20):
        held = hold_out(groups, 8, seed)
        assert not held[:60].any()
        assert held.sum() == 8


def test_warheads_split_and_small_tables_say_what_is_wrong(tmp_path):
    rows = [
        f"{s}{'C' * n},{t},{e},{(n + i) % 2},w{n}"
        for n in range(1, 25)
        for i, (s, t) in enumerate(zip(SMILES[2:5], TARGETS, strict=True))
        for e in ("CRBN", "VHL")
    ]
    header = "smiles,target_uniprot,e3_type,label,warhead"
    path = write_table(tmp_path / "a.csv", rows, header)
    table, split, _ = data(root=str(path), split="warhead", val_labels=15, label_budget=40).load()
    assert not set(table.warhead[split.train]) & set(table.warhead[split.test])


def test_rows_of_a_held_out_molecule_are_dropped():
    units = np.array([f"t{i}" for i in range(10)] * 2)
    molecules = np.array([f"m{i}" for i in range(10)] * 2)
    molecules[10:] = np.roll(molecules[10:], 1)  # each molecule has two targets
    split = split_rows(units, molecules, np.ones(20, int), 0.2, 2, 5, 0)
    assert len(split.dropped) > 0
    assert not set(molecules[split.train]) & set(molecules[split.test])


def test_transductive_and_permuted_tuples():
    plain, more = data(), data(transductive=True)
    plain.setup("fit")
    more.setup("fit")
    _, rows, _ = plain.load()
    assert set(more.datasets["train"].pool) == set(rows.train) | set(rows.test)
    assert not set(plain.datasets["train"].pool) & set(rows.test)
    permuted = data(permute=True)
    permuted.setup("fit")
    a, b = (d.datasets["train"].__getitems__(list(range(100))) for d in (plain, permuted))
    assert (a["unlabelled"]["target"] != b["unlabelled"]["target"]).any()
    context = permuted.datasets["train"].context
    assert np.array_equal(np.sort(context), np.arange(len(context)))
    assert np.array_equal(np.sort(context[rows.train]), rows.train)  # none from the test
    for key, value in a["labelled"].items():  # labels keep their own context
        assert value.equal(b["labelled"][key]) or value.isnan().any(), key


def test_an_epoch_shows_each_label_about_as_often():
    module = data(batch_size=16, label_batch=16, label_budget=30)
    module.setup("fit")
    seen = {}
    for batch in module.train_dataloader():
        for row in batch["labelled"]["fp"]:
            key = tuple(row.nonzero()[:, 0].tolist())
            seen[key] = seen.get(key, 0) + 1
    assert len(seen) >= 29  # two tuples may be of one molecule
    assert max(seen.values()) <= 4 * min(seen.values())
