"""Writes predictions to files that people of the field open, one per input, named after it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import BasePredictionWriter

from zoo.atomic import write_json
from zoo.distributed import gathered
from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.base import ZooModule


class PredictionWriter(BasePredictionWriter):
    """Writes each prediction as soon as it is made, through ``write_prediction`` of the method.

    ``predictions.json`` in the same folder says which checkpoint made which files.

    Args:
        output: Folder for the files; created if need be.
        ckpt_path: Checkpoint that the weights come from, for the record.
    """

    def __init__(self, output: str = "predictions", ckpt_path: str | None = None) -> None:
        super().__init__(write_interval="batch")
        self.output = Path(output)
        self.ckpt_path = ckpt_path
        self.written: dict[str, list[str]] = {}

    def write_on_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        prediction: Any,
        batch_indices: Sequence[int] | None,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int,
    ) -> None:
        """Writes the predictions of one batch: a list of dicts with a ``name`` each."""
        module = cast("ZooModule", pl_module)
        for one in prediction:
            name = one["name"]
            if name in self.written:
                raise ZooError(f"Two inputs are named '{name}': give them different file names.")
            paths = module.write_prediction(one, self.output / name)
            self.written[name] = [str(path.relative_to(self.output)) for path in paths]

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Gathers what each rank wrote into ``predictions.json``."""
        shares = gathered(self.written)
        if trainer.is_global_zero:
            files = {name: paths for share in shares for name, paths in sorted(share.items())}
            record = {
                "class": type(pl_module).__name__,
                "ckpt_path": self.ckpt_path,
                "predictions": files,
            }
            write_json(self.output / "predictions.json", record)
