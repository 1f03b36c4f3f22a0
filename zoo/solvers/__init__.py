"""Numerical solvers that methods share: linear programs with certificates."""

from zoo.solvers.linear_program import LinearProgram as LinearProgram
from zoo.solvers.linear_program import Solution as Solution
from zoo.solvers.linear_program import dual_bound as dual_bound
from zoo.solvers.linear_program import solve_highs as solve_highs
from zoo.solvers.pdhg import solve_pdhg as solve_pdhg
