"""Runs in the sandbox, by itself: are pairs of mathematical answers equal?

Reads ``pairs.json`` beside it, and writes the number of each pair that sympy finds equal, a line
each, as it goes: a pair that takes too long costs the time of that pair. It imports nothing of the
zoo, and sympy's parser may evaluate what it likes here.
"""

import json
import os
import re
import resource
import sys
from pathlib import Path
from typing import Any

import sympy
from sympy.parsing.sympy_parser import (
    convert_xor,
    implicit_multiplication_application,
    parse_expr,
    standard_transformations,
)

SECONDS = 2  # of CPU time, of one pair
WORDS = {
    r"\pi": "pi",
    r"\cdot": "*",
    r"\times": "*",
    r"\div": "/",
    r"\infty": "oo",
    r"\pm": "+-",
    r"^\circ": "",
    r"\circ": "",
    r"\%": "",
    "%": "",
    "\u2212": "-",
}
GROUP = r"\{((?:[^{}]|\{[^{}]*\})*)\}"


def plain(latex: str) -> str:
    """LaTeX as sympy's parser reads expressions."""
    text = latex
    for word, meaning in WORDS.items():
        text = text.replace(word, meaning)
    for _ in range(4):  # nested fractions
        text = re.sub(rf"\\frac{GROUP}{GROUP}", r"((\1)/(\2))", text)
        text = re.sub(r"\\frac(\d)(\d)", r"((\1)/(\2))", text)
        text = re.sub(rf"\\sqrt\[(\d+)\]{GROUP}", r"((\2)**(1/(\1)))", text)
        text = re.sub(rf"\\sqrt{GROUP}", r"sqrt(\1)", text)
        text = re.sub(r"\\sqrt(\d)", r"sqrt(\1)", text)
    return text.replace("{", "(").replace("}", ")").replace("\\", "")


def equal(one: str, other: str) -> bool:
    """Whether the difference of two expressions, or of each of their entries, simplifies to 0."""
    rules = (*standard_transformations, implicit_multiplication_application, convert_xor)

    def read(text: str) -> Any:
        text = re.sub(r"^\s*[a-zA-Z]\s*=", "", plain(text))  # "x = 3" answers "3"
        found = parse_expr(text, transformations=rules, evaluate=True)
        return found if isinstance(found, tuple | list | sympy.Tuple) else (found,)

    # An open interval is no closed one, and no pair.
    if (one[:1] in "([") != (other[:1] in "([") and "," in one + other:
        return False
    if "," in one and (one[0], one[-1]) != (other[0], other[-1]):
        return False
    a, b = read(one), read(other)
    return len(a) == len(b) and all(sympy.simplify(x - y) == 0 for x, y in zip(a, b, strict=True))


def in_child(one: str, other: str) -> bool:
    """:func:`equal` in a process of its own, which the kernel ends after a while.

    No exception could: a power of powers is one instruction of Python.
    """
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        try:
            os._exit(0 if equal(one, other) else 1)
        except BaseException:  # whatever a stranger's text does, it is not equal
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def main() -> None:
    """Answers the pairs in turn."""
    for number, (one, other) in enumerate(json.loads(Path("pairs.json").read_text("utf-8"))):
        if in_child(one, other):
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
