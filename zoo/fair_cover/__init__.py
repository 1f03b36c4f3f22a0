"""Fair covering: generalised partition set cover by randomised iterated rounding."""

from zoo.cover_files import CoverInstance as CoverInstance
from zoo.cover_files import read_instance as read_instance
from zoo.fair_cover.audit import Audit as Audit
from zoo.fair_cover.audit import Policy as Policy
from zoo.fair_cover.baselines import greedy as greedy
from zoo.fair_cover.baselines import ilp as ilp
from zoo.fair_cover.baselines import inamdar_varadarajan as inamdar_varadarajan
from zoo.fair_cover.module import FairCover as FairCover
from zoo.fair_cover.network import CoverNet as CoverNet
from zoo.fair_cover.result import CoverSolution as CoverSolution
