"""DegradeQuery in the contract's tests."""

import json

import numpy as np

from tests.case import Case

DEGRADER = "CC(=O)NCCOCCNC(=O)c1ccc(N)cc1"
SMILES = [
    DEGRADER,
    "O=C1CCC(N2C(=O)c3ccccc3C2=O)C(=O)N1",
    "CC(C)C[C@H](N)C(=O)O",
    "c1ccc2[nH]ccc2c1",
    "OCCOCCOc1ccncc1",
    "Clc1ccc(Cn2ccnc2)cc1",
]
TARGETS = ["O60885", "Q06187", "P10275"]
LIGASES = ["CRBN", "VHL"]


def write_table(path, rows=None, header="smiles,target_uniprot,e3_type,label"):
    """A table in the layout "tuples"; by default, every molecule with every pair."""
    if rows is None:
        rows = [
            f"{smiles}{'C' * n},{target},{e3},{(i + n + j) % 2}"
            for n in range(4)
            for i, smiles in enumerate(SMILES[2:])
            for j, target in enumerate(TARGETS)
            for e3 in LIGASES
        ]
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def write_inputs(folder):
    """One table to predict."""
    write_table(folder / "candidates.csv", [f"{s},BRD4,VHL," for s in SMILES])
    return [str(folder / "*.csv")]


def bad_inputs(folder):
    """What a table of tuples can lack."""
    good = [f"{s},{t},{e},{i % 2}" for i, s in enumerate(SMILES) for t in TARGETS for e in LIGASES]

    def case(name, rows, pattern, **options):
        path = write_table(folder / f"{name}.csv", rows)
        return {"root": str(path), **options}, pattern

    yield case(
        "smiles", [*good, "CC(=O,Q06187,VHL,1"], r"row 37.*'CC«\(»=O' is wrong at position 3"
    )
    yield case("empty", [*good, "CCO,,VHL,1"], "row 37: the target is empty")
    yield case("no_e3", [*good, "CCO,Q06187,,1"], "row 37: the E3 ligase is empty")
    yield case("e3", [*good, "CCO,Q06187,CRBNN,1"], "row 37: E3.*Did you mean 'CRBN'")
    yield case("target", [*good, "CCO,BRDD4,CRBN,1"], "row 37: target.*Did you mean 'BRD4'")
    yield case("label", [*good, "CCO,Q06187,VHL,2"], "row 37: label '2'")
    yield case("one", [g.replace("VHL", "CRBN") for g in good], "one E3 ligase only")
    yield case("single", [r for r in good if TARGETS[0] in r], "one target only")
    yield case("classes", [r[:-1] + "1" for r in good], "with the label 1 only")
    yield case("few", good[:2] + good[6:7], "leaves no labelled rows|only")
    (folder / "other.csv").write_text("smile,target_uniprot,e3_type\nCCO,Q06187,VHL\n")
    yield {"root": str(folder / "other.csv")}, "no column 'smiles'.*Did you mean 'smile'"
    yield {"root": str(folder / "nowhere.csv")}, "nowhere.csv is no file"
    (folder / "broken.json").write_text("{")
    yield {"root": str(folder / "broken.json"), "layout": "protac8k"}, "is no JSON"
    (folder / "lacks.json").write_text(json.dumps({"c0": {"smiles": "CCO", "label": 1}}))
    yield {"root": str(folder / "lacks.json"), "layout": "protac8k"}, "entry c0 lacks"
    np.savez(folder / "wide.npz", uniprot=["O60885"], features=np.ones((1, 8), np.float32))
    given = {"features": str(folder / "wide.npz"), "protein_dim": 64, "tuples": 200}
    yield given, "features are 8 numbers.*64 are expected"
    yield {"tuples": 200, "split": "warhead"}, "needs a warhead"
    yield {"inputs": [str(folder / "*.xlsx")]}, "matches no file"


CASE = Case(
    model={
        "dim": 16,
        "gnn_layers": 1,
        "gnn_dim": 8,
        "pretrain_steps": 2,  # the stages must be through within two epochs, else training warns
        "finetune_steps": 18,
        "bit_dropout": 0.0,
    },
    data={
        "tuples": 240,
        "batch_size": 24,
        "label_batch": 24,
        "val_labels": 40,
        "eval_batch_size": 24,
    },
    shapes={"logit": (2,), "compatibility": (2,), "attention": (2, 2, 3), "repr": (2, 16)},
    write_inputs=write_inputs,
    predict=lambda folder: {"smiles": DEGRADER, "target": "BRD4", "e3": "VHL"},
    bad_inputs=bad_inputs,
    # From one stage's loss to the other's, which begins higher; test_module has what is learnt.
    learns=2.0,
)
