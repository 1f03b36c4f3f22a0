# One line a method. Everything here is imported on first use.
from .base import ZooModule as ZooModule
from .bayes_auction import BayesAuction as BayesAuction
from .catalog import list_methods as list_methods
from .deep_arrhythmia import DeepArrhythmia as DeepArrhythmia
from .degbins import DegBins as DegBins
from .degrade_query import DegradeQuery as DegradeQuery
from .delta_adapter import DeltaAdapter as DeltaAdapter
from .delta_momentum import DeltaImageClassifier as DeltaImageClassifier
from .delta_momentum import DeltaLM as DeltaLM
from .errors import ZooError as ZooError
from .fair_cover import FairCover as FairCover
from .hdr_bracket import HDRBracket as HDRBracket
from .hub import from_pretrained as from_pretrained
from .scpo import SCPO as SCPO
from .sem_fas import SemFas as SemFas
from .sinkhorn_memory import SinkhornMemory as SinkhornMemory
from .skill_sd import SkillSD as SkillSD
from .skills_bench import SkillsBenchRunner as SkillsBenchRunner
from .sudo_ot import SudoOT as SudoOT

__version__: str
