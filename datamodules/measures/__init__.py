"""Libraries of weighted point clouds, and damaged queries for them."""

from .digits import DigitMeasuresDataModule as DigitMeasuresDataModule
from .modelnet import ModelNetCloudsDataModule as ModelNetCloudsDataModule
from .pairs import PointCloudPairsDataModule as PointCloudPairsDataModule
