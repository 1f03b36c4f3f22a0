"""Checked answers: as text, and by sympy where no text can harm."""

import pytest

from tests.agents_core.inside import python_runs_inside
from zoo.agents.equal_math import plain
from zoo.agents.verifiers import final_answer, normalise_answer, verify
from zoo.errors import ZooError

needs_python = pytest.mark.skipif(
    not python_runs_inside(), reason="this Python cannot be run by another user here"
)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{1} or rather \boxed{\frac{1}{2}} it is", r"\frac{1}{2}"),
        ("6 * 7 = 42\n#### 42", "42"),
        ("42", "42"),
        (r"\boxed{unclosed", r"\boxed{unclosed"),
        ("", ""),
    ],
)
def test_final_answers(text, answer):
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    ("one", "other"),
    [("$1,234$.", "1234"), (r"\left(1, 2\right)", "(1, 2)"), (r"5\text{ cm}", "5 cm")],
)
def test_what_does_not_change_an_answer(one, other):
    assert normalise_answer(one) == normalise_answer(other)


def test_exact_answers():
    answers = ["1 2 3", "1  2 3", "3 2 1", "", "#### 7"]
    assert verify(answers, ["1 2 3"] * 3 + ["", "7"]) == [True, True, False, False, True]
    with pytest.raises(ZooError, match=r"verifier='sympy'"):
        verify(["1"], ["1"], "sympy")


def test_latex_becomes_what_sympy_reads():
    assert plain(r"\frac{1}{\sqrt{2}}") == "((1)/(sqrt(2)))"
    assert plain(r"2\cdot\pi") == "2*pi"
    assert plain(r"\sqrt[3]{8}") == "((8)**(1/(3)))"


@needs_python
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_equal_by_algebra_and_no_text_gets_out(tmp_path):
    mark = tmp_path / "hacked"
    equal = [(r"\frac{1}{2}", "0.5"), ("2x+x", "3x"), (r"\sqrt{8}", r"2\sqrt2"), ("x=3", "3")]
    different = [
        ("(1, 2)", "(1, 3)"),
        ("[0, 1]", "(0, 1)"),
        (f"__import__('pathlib').Path('{mark}').touch()", "1"),
        ("9" * 500, "1"),
        ("not math", "1"),
    ]
    pairs = [*equal, *different]
    found = verify([a for a, _ in pairs], [b for _, b in pairs], "math", timeout_s=240)
    assert found == [True] * len(equal) + [False] * len(different)
    assert not mark.exists()


@needs_python
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_endless_power_costs_its_own_pair_alone():
    found = verify(["9**9**9**9", "1/2"], ["1", "0.5"], "math", timeout_s=240)
    assert found == [False, True]
