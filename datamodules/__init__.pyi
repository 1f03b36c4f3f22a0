# One line a data module. Everything here is imported on first use.
from .base import ZooDataModule as ZooDataModule
from .guided_depth import GuidedDepthDataModule as GuidedDepthDataModule
from .multimodal_fas import MultimodalFASDataModule as MultimodalFASDataModule
