"""SEM-FAS: quantum-inspired evidence measurement for multimodal face anti-spoofing."""

from zoo.sem_fas.baselines import FASConcat
from zoo.sem_fas.head import EvidenceHead, FASOutput, Measurement
from zoo.sem_fas.module import SemFas
from zoo.sem_fas.result import FASResult

__all__ = ["EvidenceHead", "FASConcat", "FASOutput", "FASResult", "Measurement", "SemFas"]
