"""DegradeQuery: tuple-conditioned prediction of degradation by PROTACs."""

from zoo.degrade_query.forest import FingerprintForest
from zoo.degrade_query.module import DegradeQuery
from zoo.degrade_query.network import DegradeQueryNet
from zoo.degrade_query.result import Explanation, RankedTarget

__all__ = ["DegradeQuery", "DegradeQueryNet", "Explanation", "FingerprintForest", "RankedTarget"]
