"""Time-stamped snapshots of cells: AnnData, the field's CSV layout, and two generators."""

from .datamodule import CellSnapshotsDataModule as CellSnapshotsDataModule
from .gaussian_wfr import gaussian_wfr as gaussian_wfr
from .gene_circuit import gene_circuit as gene_circuit
