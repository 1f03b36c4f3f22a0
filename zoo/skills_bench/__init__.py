"""SkillsBench: does a skill help? A paired benchmark of agent skills."""

from zoo.skills_bench.agent import AgentArgs as AgentArgs
from zoo.skills_bench.metrics import PairedEvaluation as PairedEvaluation
from zoo.skills_bench.module import SkillsBenchRunner as SkillsBenchRunner
from zoo.skills_bench.network import LiftModel as LiftModel
from zoo.skills_bench.report import Report as Report
from zoo.skills_bench.report import make_report as make_report
from zoo.skills_bench.runner import Bench as Bench
from zoo.skills_bench.runner import RunArgs as RunArgs
