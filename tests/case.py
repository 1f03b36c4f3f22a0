"""What a method tells the contract's tests about itself, in ``tests/<method>/case.py``."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Case:
    """Tiny but real sizes of one method, and samples of what can go wrong.

    Attributes:
        model: Init arguments of the method, small.
        data: Init arguments of its data module, small: few samples, several test batches.
        shapes: Of each tensor of ``forward(**example_inputs())``, by dotted name.
        write_inputs: Writes input files for ``predict`` into a folder; returns ``--data.inputs``.
        predict: Arguments of ``model.predict`` for these files.
        bad_inputs: For an empty folder: data arguments, and a pattern of the one sentence that
            ``setup`` must raise.
        trainer: Options of the trainer that the method needs.
        learns: To which fraction 20 steps on one batch must bring the loss at least.
    """

    model: Mapping[str, Any]
    data: Mapping[str, Any]
    shapes: Mapping[str, Sequence[int]]
    write_inputs: Callable[[Path], list[str]]
    predict: Callable[[Path], Mapping[str, Any]]
    bad_inputs: Callable[[Path], Iterable[tuple[Mapping[str, Any], str]]]
    trainer: Mapping[str, Any] = field(default_factory=dict)
    learns: float = 0.9

    def options(self) -> list[str]:
        """The same sizes as command-line options."""
        groups = {"model": self.model, "data": self.data, "trainer": self.trainer}
        return [
            text
            for group, values in groups.items()
            for key, value in values.items()
            for text in (f"--{group}.{key}", "null" if value is None else str(value))
        ]


def load_case(name: str) -> Case:
    """The case of a method."""
    return import_module(f"tests.{name}.case").CASE  # type: ignore[no-any-return]
