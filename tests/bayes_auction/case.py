"""Equilibrium learning in auctions, in the contract's tests."""

import numpy as np

from tests.case import Case


def write_inputs(folder):
    """A folder with valuations, one with bids, and a game in YAML."""
    rng = np.random.default_rng(0)
    for name in ("lots", "tenders", "village"):
        (folder / name).mkdir(exist_ok=True)
    values = rng.beta(2, 2, 60)
    (folder / "lots/values.csv").write_text("value\n" + "\n".join(f"{v:.4f}" for v in values))
    (folder / "lots/game.yaml").write_text("n_types: 4\nn_bids: 4\n")
    bids = [f"{i // 2},{i % 2},{b:.4f}" for i, b in enumerate(rng.beta(2, 3, 40) / 2)]
    (folder / "tenders/bids.csv").write_text("auction,bidder,bid\n" + "\n".join(bids))
    (folder / "tenders/game.yaml").write_text("n_types: 4\nn_bids: 4\n")
    (folder / "village/game.yaml").write_text(
        "values: [1, 2, 3]\nbids: [0, 1, 2]\nprior: [0.5, 0.25, 0.25]\nn_bidders: 3\n"
    )
    return [str(folder / name) for name in ("lots", "tenders", "village")]


def bad_inputs(folder):
    """What games can lack, one mistake each."""

    def inputs(name, file, text):
        (folder / name).mkdir()
        (folder / name / file).write_text(text)
        return {"inputs": [str(folder / name)]}

    game = "values: [1, 2]\nbids: [0, 1]\nprior: [0.5, 0.5]\n"
    yield inputs("sum", "game.yaml", game.replace("0.5]", "0.6]")), "sums to 1.1"
    yield inputs("minus", "game.yaml", game.replace("[0.5, 0.5]", "[1.5, -0.5]")), "-0.5"
    yield inputs("order", "game.yaml", game.replace("[1, 2]", "[2, 1]")), "values must.*rise"
    yield inputs("twice", "game.yaml", game.replace("[0, 1]", "[1, 1]")), "bids must.*duplicates"
    yield inputs("above", "game.yaml", game.replace("[0, 1]", "[1.5, 3]")), "value 1 has no bid"
    yield inputs("key", "game.yaml", "values: [1]\n"), "no key 'bids'"
    yield inputs("list", "game.yaml", "- 1\n"), "holds no keys"
    yield inputs("yaml", "game.yaml", "a: [1\n"), "is no YAML"
    yield inputs("rule", "game.yaml", game + "payment: third\n"), "payment='third'"
    yield inputs("alone", "game.yaml", game + "n_bidders: 1\n"), "1 bidder"
    yield inputs("nan", "values.csv", "value\n0.5\nnan\n"), "line 3: 'nan' is not finite"
    yield inputs("word", "values.csv", "value\nhigh\n"), "line 2: 'high' is no number"
    yield inputs("column", "values.csv", "price\n1\n"), "no column 'value'"
    uneven = "auction,bidder,bid\n1,a,0.1\n1,b,0.2\n2,a,0.3\n"
    yield inputs("uneven", "bids.csv", uneven), "1, 2 bidders"
    few = "auction,bidder,bid\n1,a,0.1\n1,b,0.2\n"
    yield inputs("few", "bids.csv", few), "2 bids"
    yield {"inputs": [str(folder / "*.json")]}, "matches no file"
    yield {"root": str(folder / "nowhere")}, "nowhere"


CASE = Case(
    model={"steps": 20, "starts": 2, "lp_sizes": [3], "hidden": 64},
    data={
        "alphas": [2.0],
        "sizes": [3, 4],
        "n_train": 32,
        "n_val": 4,
        "batch_size": 8,
        "eval_batch_size": 2,
    },
    shapes={"value": (1, 2, 4, 4)},
    write_inputs=write_inputs,
    predict=lambda folder: {"game": folder / "village"},
    bad_inputs=bad_inputs,
    trainer={"check_val_every_n_epoch": 1},  # the default looks every fifth epoch
    learns=0.9,
)
