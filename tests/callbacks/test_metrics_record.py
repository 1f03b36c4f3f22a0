"""What is written after a test, and what is not."""

import json

import pytest
import torch
from lightning import Trainer
from lightning.pytorch.loggers import CSVLogger

from tests.toy import Toy, ToyDataModule
from zoo.callbacks.metrics import MetricsRecord


class HalfMeasured(Toy):
    """Logs a figure, and one that was not measured."""

    def on_test_epoch_end(self):
        self.log("test_known", torch.tensor(0.5))
        self.log("test_unknown", torch.tensor(torch.nan))


def test_what_was_not_measured_is_left_out_with_a_warning(tmp_path):
    trainer = Trainer(
        logger=CSVLogger(tmp_path),
        callbacks=[MetricsRecord()],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with pytest.warns(UserWarning, match="test_unknown are no finite numbers"):
        trainer.test(HalfMeasured(), ToyDataModule(), verbose=False)
    record = json.loads(next(tmp_path.glob("*/*/metrics.json")).read_text())
    assert record["metrics"]["test_known"] == 0.5
    assert "test_unknown" not in record["metrics"]
