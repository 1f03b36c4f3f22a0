"""Sinkhorn memory in the contract's tests, with prototypes: what is stored has no gradient.

``test_store.py`` takes the default mode, which stores, down the same roads.
"""

import numpy as np

from tests.case import Case


def write_cloud(path, n=7, dim=3, seed=0, **changes):
    """A cloud with weights and an id."""
    rng = np.random.default_rng(seed)
    arrays = {"points": rng.normal(size=(n, dim)), "weights": rng.random(n) + 0.1}
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {**arrays, **changes}
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return path


def write_folder(root, **changes):
    """The layout of one's own data: three stored clouds and four queries."""
    for k in range(3):
        write_cloud(root / f"stored/cloud{k}.npz", n=6 + k, seed=k, id=f"c{k}")
    for k in range(4):
        write_cloud(root / f"queries/q{k}.npz", n=5, seed=k % 3, **{"id": f"c{k % 3}", **changes})
    return root


def write_inputs(folder):
    """Two clouds of different size, one without weights."""
    write_cloud(folder / "scan.npz")
    write_cloud(folder / "partial.npz", n=4, weights=None)
    return [str(folder / "*.npz")]


def bad_inputs(folder):
    """What a folder of clouds can lack."""
    yield {"root": str(folder / "nowhere")}, "stored.*no .npz file"
    points = np.ones((3, 3))
    for name, broken, pattern in (
        ("nan", {"points": np.full((3, 3), np.nan), "weights": None}, "not finite.*row 0"),
        ("shape", {"points": np.ones(3), "weights": None}, r"shape \(3,\)"),
        ("empty", {"points": np.ones((0, 3)), "weights": None}, r"shape \(0, 3\)"),
        ("negative", {"points": points, "weights": np.array([1, -1, 1])}, "number 1 is -1"),
        ("zero", {"points": points, "weights": np.zeros(3)}, "all 0"),
        ("length", {"points": points, "weights": np.ones(2)}, "for 3 points"),
        ("dims", {"points": np.ones((3, 2)), "weights": None}, "has 2 dimensions"),
        ("words", {"points": np.array([["a", "b"]]), "weights": None}, "no array of numbers"),
        ("unknown", {"id": "c9"}, "no stored cloud has the id 'c9'"),
        ("long", {"id": "x" * 80}, "64 bytes"),
    ):
        yield {"root": str(write_folder(folder / name, **broken))}, pattern
    bare = folder / "bare/stored/a.npz"
    bare.parent.mkdir(parents=True)
    np.savez(bare, cloud=np.ones((2, 2)))
    write_cloud(folder / "bare/queries/a.npz")
    yield {"root": str(folder / "bare")}, "no array 'points'.*cloud"
    bare.write_bytes(b"no archive")
    yield {"root": str(folder / "bare")}, "no readable .npz"
    yield {"inputs": [str(folder / "*.xyz")]}, "matches no file"


CASE = Case(
    model={
        "mode": "learn",
        "n_patterns": 3,
        "support": 5,
        "dim": 3,
        "max_steps": 4,
        "beta": 20.0,
        "inner_iters": 30,
    },
    data={
        "patterns": 9,
        "points": 6,
        "dim": 3,
        "batch_size": 4,
        "eval_batch_size": 3,
    },
    shapes={
        "0": (2, 5, 3),
        "1": (2, 5),
        "2": (2, 3),
        "3": (2, 3),
        "4": (2, 5),
        "5": (2,),
        "6": (2,),
    },
    write_inputs=write_inputs,
    predict=lambda folder: {"cloud": folder / "scan.npz"},
    bad_inputs=bad_inputs,
    learns=0.9,
)
