"""DegBins: guided depth super-resolution by degradation-driven residual binning."""

from zoo.degbins.module import DegBins, DepthPrediction
from zoo.degbins.network import DegBinsNet

__all__ = ["DegBins", "DegBinsNet", "DepthPrediction"]
