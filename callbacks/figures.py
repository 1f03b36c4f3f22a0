"""Shows the pictures that a method draws: in the run folder and in every logger that can."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger

from zoo.atomic import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from zoo.base import ZooModule


class FigureSaver(Callback):
    """Draws ``figures(batch, outputs)`` for the first batches of validation and test.

    Args:
        batches: How many batches of each evaluation are drawn.
        dpi: Resolution of the PNG files in ``<run folder>/figures``.
    """

    def __init__(self, batches: int = 1, dpi: int = 100) -> None:
        self.batches = batches
        self.dpi = dpi

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Draws, except in the sanity check."""
        if not trainer.sanity_checking:
            self._draw(trainer, pl_module, outputs, batch, batch_idx, "val")

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Draws."""
        self._draw(trainer, pl_module, outputs, batch, batch_idx, "test")

    def _draw(
        self,
        trainer: Trainer,
        module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        stage: str,
    ) -> None:
        if batch_idx >= self.batches or not trainer.is_global_zero or not trainer.loggers:
            return
        run_folder = Path(trainer.loggers[0].log_dir or trainer.default_root_dir)
        for name, figure in cast("ZooModule", module).figures(batch, outputs).items():
            label = f"{stage}_{name}" if batch_idx == 0 else f"{stage}_{name}_{batch_idx}"
            with atomic_path(run_folder / "figures" / f"{label}.png") as path:
                figure.savefig(path, dpi=self.dpi, bbox_inches="tight")
            for logger in trainer.loggers:
                _show(logger, label, figure, trainer.global_step)


def _show(logger: Logger, label: str, figure: Figure, step: int) -> None:
    """Hands a figure to the loggers that show pictures; the others have it in the run folder."""
    if isinstance(logger, TensorBoardLogger):
        logger.experiment.add_figure(label, figure, step, close=False)
    elif isinstance(logger, WandbLogger):
        logger.log_image(label, [figure], step=step)
