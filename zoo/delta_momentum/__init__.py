"""Delta-rule momentum: a language model and an image classifier to measure it on.

The optimisers themselves are for every method and live in :mod:`zoo.optim`.
"""

from zoo.delta_momentum.classifier import DeltaImageClassifier
from zoo.delta_momentum.module import DeltaLM
from zoo.delta_momentum.network import Decoder

__all__ = ["Decoder", "DeltaImageClassifier", "DeltaLM"]
