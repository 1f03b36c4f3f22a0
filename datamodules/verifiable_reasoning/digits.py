"""Eight skills on digits, of which a small policy soon knows some better than others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import torch

from zoo.errors import ZooError

from .problems import Problem

LENGTH = 3  # digits of a list
MOST = 4000  # problems: a list of three digits has a thousand, and they must be found by chance
# Share of the demonstrations: skills must differ in difficulty, or there is nothing to couple.
EXPOSURE = (6, 3, 3, 2, 2, 1, 1, 2)


def _digits(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))


def _arithmetic(sign: int) -> Callable[[Sequence[int]], str]:
    # Two digits each: with one there would be a hundred questions, too few to keep splits apart.
    return lambda d: str((10 * d[0] + d[1] + sign * (10 * d[2] + d[3])) % 10)


SOLVE: Mapping[str, Callable[[Sequence[int]], str]] = {
    "last": lambda d: str(d[-1]),
    "max": lambda d: str(max(d)),
    "min": lambda d: str(min(d)),
    "reverse": lambda d: _digits(d[::-1]),
    "sort": lambda d: _digits(sorted(d)),
    "add": _arithmetic(1),
    "subtract": _arithmetic(-1),
    "count": lambda d: str(sum(x > 4 for x in d)),
}
SKILLS = tuple(SOLVE)
VOCABULARY = (*SKILLS, "and", *"0123456789")


def draw(skill: str, generator: torch.Generator | None = None) -> Problem:
    """A random problem of a skill; from PyTorch's own generator unless there is another."""

    def numbers(high: int, count: int) -> list[int]:
        found: list[int] = torch.randint(high, (count,), generator=generator).tolist()
        return found

    if skill in ("add", "subtract"):
        d = numbers(10, 4)
        text = f"{_digits(d[:2])} and {_digits(d[2:])}"
    else:
        d = numbers(10, LENGTH)
        text = _digits(d)
    return Problem(f"{skill} {text}", SOLVE[skill](d), SKILLS.index(skill))


def splits(sizes: Mapping[str, int], seed: int) -> dict[str, list[Problem]]:
    """Problems of each split, the skills in turn; no question is in two splits or twice in one.

    Args:
        sizes: Problems by split.
        seed: Of the draws.

    Raises:
        ZooError: If there are not so many problems.
    """
    if sum(sizes.values()) > MOST:
        raise ZooError(f"{sum(sizes.values())} digit problems are asked for: at most {MOST}.")
    generator = torch.Generator().manual_seed(seed)
    seen: set[str] = set()
    found: dict[str, list[Problem]] = {}
    for split, size in sizes.items():
        problems: list[Problem] = []
        while len(problems) < size:
            problem = draw(SKILLS[len(problems) % len(SKILLS)], generator)
            if problem.question not in seen:
                seen.add(problem.question)
                problems.append(problem)
        found[split] = problems
    return found


def demonstration(held_out: Collection[str]) -> Problem:
    """A problem to imitate, of a skill drawn by :data:`EXPOSURE`, none of ``held_out``."""
    weights = torch.tensor(EXPOSURE, dtype=torch.float)
    skill = SKILLS[int(torch.multinomial(weights, 1))]
    problem = draw(skill)
    while problem.question in held_out:
        problem = draw(skill)
    return problem
