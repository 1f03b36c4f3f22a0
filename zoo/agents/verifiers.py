"""Rewards that can be checked: is this answer the reference's?"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from zoo.errors import check_choice

VERIFIERS = ("exact", "math")
LONGEST = 400  # characters: an answer is short, and sympy slow


def final_answer(text: str) -> str:
    r"""What a solution gives as its answer.

    That is the last ``\boxed{...}``, else what follows the last ``####``, else the whole text.
    """
    start = text.rfind(r"\boxed{")
    if start >= 0:
        depth, begin = 0, start + len(r"\boxed{")
        for end in range(begin - 1, len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                return text[begin:end].strip()
    return text.rpartition("####")[2].strip()


def normalise_answer(text: str) -> str:
    r"""An answer without what does not change it.

    That is spaces, dollar signs, thousands' commas, a final stop, LaTeX's spacing and ``\left``,
    and the command around units.
    """
    text = text.strip().rstrip(".").replace("$", "").replace("\\!", "").replace("\\,", "")
    text = re.sub(r"\\(left|right)\b", "", text)
    text = re.sub(r"\\text\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\\(d|t)frac\b", r"\\frac", text)
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    return " ".join(text.split())


def verify(
    answers: Sequence[str],
    references: Sequence[str],
    verifier: str = "exact",
    timeout_s: float = 60.0,
) -> list[bool]:
    """Whether each answer is its reference's.

    Args:
        answers: What a model wrote; an empty one is wrong.
        references: Solutions or bare answers, of the same number.
        verifier: "exact" compares normalised text; "math" asks sympy, in the sandbox, about the
            pairs that differ as text.
        timeout_s: Of one such run, for all pairs of the call; a pair that it did not reach, or that
            sympy can't read, is wrong.
    """
    check_choice("verifier", verifier, VERIFIERS)
    ours = [normalise_answer(final_answer(a)) for a in answers]
    theirs = [normalise_answer(final_answer(r)) for r in references]
    right = [bool(a) and a == r for a, r in zip(ours, theirs, strict=True)]
    if verifier == "math":
        open_pairs = sorted({(a, r) for a, r in zip(ours, theirs, strict=True) if a and a != r})
        equal = dict(zip(open_pairs, _equal(open_pairs, timeout_s), strict=True))
        both = zip(right, ours, theirs, strict=True)
        right = [ok or equal.get((a, r), False) for ok, a, r in both]
    return right


def _equal(pairs: Sequence[tuple[str, str]], timeout_s: float) -> list[bool]:
    """Whether sympy finds each pair equal, in one run of the sandbox."""
    if not pairs:
        return []
    from zoo.agents.sandbox import run

    script = Path(__file__).with_name("equal_math.py").read_text(encoding="utf-8")
    files = {"equal_math.py": script, "pairs.json": json.dumps([p for p in pairs if _short(p)])}
    numbers = [i for i, p in enumerate(pairs) if _short(p)]
    done = run(
        [sys.executable, "-I", "equal_math.py"],
        files,
        timeout_s=timeout_s,
        cpu_s=max(1, int(timeout_s)),
        mem_mb=1024,
    )
    found = {int(line) for line in done.stdout.split() if line.isdigit()}
    equal = {numbers[i] for i in found if i < len(numbers)}
    return [i in equal for i in range(len(pairs))]


def _short(pair: tuple[str, str]) -> bool:
    return max(map(len, pair)) <= LONGEST
