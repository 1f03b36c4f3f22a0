"""Linear programs: known optima, certificates of any multipliers, and batches of first order."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from zoo.errors import ZooError
from zoo.solvers import LinearProgram, dual_bound, solve_highs, solve_pdhg


def program(seed=0, rows=20, columns=30, equal=0):
    rng = np.random.default_rng(seed)
    k = np.where(rng.random((rows, columns)) < 0.3, rng.uniform(-0.5, 1, (rows, columns)), 0)
    inside = rng.random(columns)
    slack = np.r_[np.zeros(equal), rng.random(rows - equal)]
    which = np.arange(rows) < equal
    upper = rng.uniform(1, 2, columns)
    return LinearProgram(
        rng.normal(size=columns),
        csr_array(k),
        k @ inside - slack,
        np.zeros(columns),
        upper,
        which if equal else None,
    )


def test_by_hand():
    """min x + 2y with x + y >= 1.5 in the unit square: x = 1, y = 0.5."""
    found = solve_highs(
        LinearProgram(
            np.array([1.0, 2.0]),
            csr_array([[1.0, 1.0]]),
            np.array([1.5]),
            np.zeros(2),
            np.ones(2),
        )
    )
    assert found.x == pytest.approx([1, 0.5])
    assert found.value == pytest.approx(2)
    assert found.bound == pytest.approx(2)
    assert found.y == pytest.approx([2])


@pytest.mark.parametrize("equal", [0, 4])
def test_multipliers_prove_the_optimum(equal):
    found = solve_highs(program(equal=equal))
    assert found.bound == pytest.approx(found.value, abs=1e-7)


def test_any_multipliers_prove_a_bound():
    p = program()
    value = solve_highs(p).value
    rng = np.random.default_rng(1)
    for _ in range(50):
        assert dual_bound(p, rng.normal(size=len(p.least))) <= value + 1e-9


@pytest.mark.parametrize("equal", [0, 4])
def test_batch_of_first_order_is_near_and_its_bound_below(equal):
    programs = [
        program(seed, rows=10 + seed, columns=15 + 2 * seed, equal=equal) for seed in range(6)
    ]
    exact = [solve_highs(p) for p in programs]
    for p, e, found in zip(programs, exact, solve_pdhg(programs, 1e-6), strict=True):
        assert found.value == pytest.approx(e.value, abs=1e-4)
        assert found.bound <= e.value + 1e-6
        assert found.bound == pytest.approx(e.value, abs=1e-4)
        assert (found.x >= p.lower).all()
        assert (found.x <= p.upper).all()
        assert (p.rows @ found.x >= p.least - 1e-4).all()


def test_batch_gives_each_what_it_gets_alone():
    programs = [program(seed) for seed in range(3)]
    together = solve_pdhg(programs, 1e-5)
    for p, found in zip(programs, together, strict=True):
        (alone,) = solve_pdhg([p], 1e-5)
        assert found.iterations == alone.iterations
        assert found.x == pytest.approx(alone.x, abs=1e-9)


def test_start_at_the_optimum_ends_at_once():
    p = program()
    exact = solve_highs(p)
    (cold,) = solve_pdhg([p], 1e-6)
    (warm,) = solve_pdhg([p], 1e-6, start=[(exact.x, exact.y)])
    assert warm.iterations == 0 < cold.iterations
    assert warm.value == pytest.approx(exact.value)


def test_unfinished_is_still_certified():
    p = program()
    (found,) = solve_pdhg([p], 1e-9, max_iterations=10)
    assert found.iterations == 10
    assert found.bound <= solve_highs(p).value


def test_infeasible_is_one_sentence():
    p = LinearProgram(np.ones(1), csr_array([[1.0]]), np.array([2.0]), np.zeros(1), np.ones(1))
    with pytest.raises(ZooError, match=r"The plan has no optimum: .*infeasible"):
        solve_highs(p, "The plan")
