"""DeepArrhythmia: segment-contextualised beat classification with selective evidence."""

from zoo.deep_arrhythmia.baselines import BoostingBaseline
from zoo.deep_arrhythmia.measures import MEASURES, MeasureTool
from zoo.deep_arrhythmia.module import DeepArrhythmia
from zoo.deep_arrhythmia.network import BeatNetwork
from zoo.deep_arrhythmia.report import ReportTool
from zoo.deep_arrhythmia.result import Beats

__all__ = [
    "MEASURES",
    "BeatNetwork",
    "Beats",
    "BoostingBaseline",
    "DeepArrhythmia",
    "MeasureTool",
    "ReportTool",
]
