"""SUDO: simulation-free unbalanced dynamic optimal transport for snapshots of cells."""

from zoo.sudo_ot.baseline import SimulatedOT as SimulatedOT
from zoo.sudo_ot.cost import CostNet as CostNet
from zoo.sudo_ot.cost import CostTable as CostTable
from zoo.sudo_ot.coupling import Coupling as Coupling
from zoo.sudo_ot.coupling import pot_coupling as pot_coupling
from zoo.sudo_ot.coupling import semi_coupling as semi_coupling
from zoo.sudo_ot.module import SudoOT as SudoOT
from zoo.sudo_ot.path import PathNet as PathNet
from zoo.sudo_ot.path import wfr_cost as wfr_cost
from zoo.sudo_ot.penalty import GrowthPenalty as GrowthPenalty
from zoo.sudo_ot.reference import reference_path as reference_path
