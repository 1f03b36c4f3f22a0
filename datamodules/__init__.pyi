# One line a data module. Everything here is imported on first use.
from .base import ZooDataModule as ZooDataModule
from .edit_pairs import EditPairsDataModule as EditPairsDataModule
from .focal_stack import FocalStackDataModule as FocalStackDataModule
from .guided_depth import GuidedDepthDataModule as GuidedDepthDataModule
from .hdr import HDRDataModule as HDRDataModule
from .multimodal_fas import MultimodalFASDataModule as MultimodalFASDataModule
