"""Fair covering in the contract's tests."""

from tests.case import Case

TABLES = {
    "sets.csv": "id,cost\nnorth,1\nsouth,1.5\neast,2\n",
    "membership.csv": (
        "set,element\nnorth,ann\nnorth,bob\nsouth,bob\nsouth,cat\neast,ann\neast,cat\neast,dan\n"
    ),
    "groups.csv": "group,element\nold,ann\nold,bob\nyoung,bob\nyoung,cat\nyoung,dan\n",
    "group_targets.csv": "group,k,fraction\nold,1,\nyoung,,0.6\n",
    "elements.csv": "element,p\nann,0.5\ndan,0.3\n",
}


def write_tables(folder, **changes):
    """A folder of tables; ``changes`` replace whole files, ``None`` leaves one out."""
    folder.mkdir(exist_ok=True)
    for name, text in {**TABLES, **{f"{k}.csv": v for k, v in changes.items()}}.items():
        if text is not None:
            (folder / name).write_text(text)
    return folder


def write_inputs(folder):
    """A folder of tables, and a file of OR-Library's layout."""
    write_tables(folder / "town")
    (folder / "scp_tiny.txt").write_text("3 3\n1 2 3\n2\n1 2\n2\n2 3\n1\n3\n")
    return [str(folder / "town"), str(folder / "*.txt")]


def bad_inputs(folder):
    """What tables can lack, one mistake each."""

    def root(name, **changes):
        (folder / name).mkdir()
        write_tables(folder / name / "town", **changes)
        # A training split of its own needs the first of ten.
        return {"root": str(folder / name)}

    yield root("cost", sets="id,cost\nnorth,0\nsouth,1\neast,1\n"), "'north' costs 0"
    yield root("twice", sets="id,cost\nnorth,1\nnorth,1\nsouth,1\neast,1\n"), "line 3.*second time"
    yield root("chance", elements="element,p\nann,1.5\n"), "'ann' is promised the chance 1.5"
    yield root("alone", elements="element,p\nann,0.5\nzoe,0.2\n"), "no set holds.*zoe"
    yield root("need", group_targets="group,k\nold,5\n"), "'old' needs 5.*0 to 2"
    yield root("empty", group_targets="group,k\nrich,1\n"), "'rich' is empty but needs 1"
    yield root("who", groups="group,element\nold,eve\n"), "line 2.*'eve'"
    yield root("which", membership="set,element\nwest,ann\n"), "line 2.*'west'"
    yield root("words", sets="id,cost\nnorth,cheap\n"), "line 2: 'cheap' is no number"
    yield root("column", sets="id,price\nnorth,1\n"), "no column 'cost'"
    yield root("none", membership=None), "no membership.csv"
    (folder / "short").mkdir()
    (folder / "short/scp1.txt").write_text("3 3\n1 2 3\n2\n1 2\n")
    yield {"root": str(folder / "short")}, "scp1.txt ends early"
    (folder / "range").mkdir()
    (folder / "range/scp1.txt").write_text("1 2\n1 1\n1\n3\n")
    yield {"root": str(folder / "range")}, "row 1 and column 3"
    yield {"root": str(folder / "nowhere")}, "nowhere"
    yield {"inputs": [str(folder / "*.dat")]}, "matches no file"


CASE = Case(
    model={"trials": 2, "predictor_width": 8, "predictor_rounds": 1, "compare": ["greedy", "iv"]},
    data={"sizes": [[40, 12, 3]], "n_train": 8, "n_val": 3, "n_test": 5, "batch_size": 2},
    shapes={"x": (4,), "duals": (2,)},
    write_inputs=write_inputs,
    predict=lambda folder: {"instance": folder / "town"},
    bad_inputs=bad_inputs,
    learns=0.95,
)
