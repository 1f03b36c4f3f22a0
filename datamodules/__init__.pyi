# One line a data module. Everything here is imported on first use.
from .agent_tasks import AgentTaskDataModule as AgentTaskDataModule
from .auction_games import AuctionGamesDataModule as AuctionGamesDataModule
from .base import ZooDataModule as ZooDataModule
from .byte_text import ByteTextDataModule as ByteTextDataModule
from .cell_snapshots import CellSnapshotsDataModule as CellSnapshotsDataModule
from .cifar import CifarDataModule as CifarDataModule
from .cover import CoverInstancesDataModule as CoverInstancesDataModule
from .digits import DigitsDataModule as DigitsDataModule
from .ecg_segments import EcgSegmentsDataModule as EcgSegmentsDataModule
from .edit_pairs import EditPairsDataModule as EditPairsDataModule
from .focal_stack import FocalStackDataModule as FocalStackDataModule
from .guided_depth import GuidedDepthDataModule as GuidedDepthDataModule
from .hdr import HDRDataModule as HDRDataModule
from .measures import DigitMeasuresDataModule as DigitMeasuresDataModule
from .measures import ModelNetCloudsDataModule as ModelNetCloudsDataModule
from .measures import PointCloudPairsDataModule as PointCloudPairsDataModule
from .multimodal_fas import MultimodalFASDataModule as MultimodalFASDataModule
from .protac_tuples import ProtacTuplesDataModule as ProtacTuplesDataModule
from .skill_tasks import SkillsBenchDataModule as SkillsBenchDataModule
from .token_shards import TokenShardsDataModule as TokenShardsDataModule
from .trajectories import TrajectoryDataModule as TrajectoryDataModule
from .verifiable_reasoning import (
    VerifiableReasoningDataModule as VerifiableReasoningDataModule,
)
