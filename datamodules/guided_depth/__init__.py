"""RGB-guided depth super-resolution: embedded scenes, public benchmarks, and a user's own files."""

from .datamodule import GuidedDepthDataModule as GuidedDepthDataModule
from .degradation import bicubic as bicubic
from .degradation import fill_unknown as fill_unknown
