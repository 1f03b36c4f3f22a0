"""DeltaLM in the contract's tests."""

from tests.case import Case


def write_inputs(folder):
    """Two beginnings of a program, and the file that the card measures."""
    (folder / "main.py").write_text("def main(")
    (folder / "loop.py").write_text("for i in range(10):\n    ")
    (folder / "file.py").write_text("import os\n\nprint(os.name)\n")
    return [str(folder / "main.py"), str(folder / "loop.py")]


def bad_inputs(folder):
    """No such folder, an empty one, too little text, and prompts that are no ASCII or no text."""
    yield {"root": str(folder / "nowhere")}, "nowhere"
    (folder / "empty").mkdir()
    yield {"root": str(folder / "empty")}, "no text file"
    (folder / "short").mkdir()
    (folder / "short/a.txt").write_text("too short")
    yield {"root": str(folder / "short")}, "window of context"
    (folder / "accent.txt").write_text("caf\u00e9")
    yield {"inputs": str(folder / "accent.txt")}, "U.00E9.*character 3"
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    yield {"inputs": str(folder / "latin.txt")}, "no UTF-8"
    (folder / "nothing.txt").write_text("")
    yield {"inputs": str(folder / "nothing.txt")}, "is empty"


CASE = Case(
    model={"width": 16, "layers": 2, "heads": 2, "hidden": 32, "context": 24, "max_new_tokens": 4},
    data={
        "context": 24,
        "batch_size": 4,
        "eval_batch_size": 2,
        "samples_per_epoch": 16,
        "eval_windows": 5,
    },
    shapes={"value": (2, 16, 128)},
    write_inputs=write_inputs,
    predict=lambda folder: {"prompt": "def main("},
    bad_inputs=bad_inputs,
    learns=0.7,
)
