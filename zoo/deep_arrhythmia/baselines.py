"""What DeepArrhythmia is compared with: gradient boosting on the numbers of Tool 2."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer
from numpy.typing import NDArray
from torch import Tensor

from zoo.deep_arrhythmia.measures import MeasureTool
from zoo.deep_arrhythmia.routing import confusion, f1_of, macro_f1
from zoo.ecg.beats import CLASSES
from zoo.ecg.strip import FS
from zoo.errors import ZooError

PASSES = 3  # over the training segments, which begin elsewhere each time
BEAT_S = (0.3, 0.45)  # before and after R, of the samples that boosting may see alone
EVERY = 5  # of them


class BoostingBaseline(Callback):
    """Fits gradient boosting to the same training beats, and logs it beside a test run.

    ``test_macro_f1_boosting``: on the 16 numbers of Tool 2, which know the rhythm, with all
    patients of training, held out or not. ``test_macro_f1_boosting_alone``: on the samples of each
    beat. ``test_macro_f1_boosting_both``: on both. Needs scikit-learn.

    Args:
        seed: Of the trees.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Trains and tests."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        data.setup("fit")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            train = [features(data.datasets["train"]) for _ in range(PASSES)]
        test = features(data.datasets["test"])
        label = np.concatenate([part["label"].ravel() for part in train])
        known = (label >= 0) & (label < len(CLASSES))
        truth, missed = (torch.from_numpy(test[key]) for key in ("label", "missed"))
        for key, suffix in (("measures", ""), ("samples", "_alone"), ("both", "_both")):
            x = np.concatenate([part[key].reshape(-1, part[key].shape[-1]) for part in train])
            model = _boosting(self.seed)
            model.fit(x[known], label[known])
            found = np.zeros((*truth.shape, len(CLASSES)), np.float32)
            found[..., model.classes_] = model.predict_proba(
                test[key].reshape(-1, x.shape[-1])
            ).reshape(*truth.shape, -1)
            matrix = confusion(torch.from_numpy(found), truth, missed).sum(dim=0)
            pl_module.log(f"test_macro_f1_boosting{suffix}", macro_f1(matrix).float())
            for name, value in zip(CLASSES, f1_of(matrix), strict=False):
                if value.isfinite():
                    pl_module.log(f"test_f1_{name}_boosting{suffix}", value.float())


def features(dataset: Any) -> dict[str, NDArray[Any]]:
    """Measures (N, n, 16), samples (N, n, S), both, label (N, n) and missed (N, 5)."""
    samples: Iterable[dict[str, Tensor]] = (dataset[i] for i in range(len(dataset)))
    kept = ("signal", "strip", "peaks", "mask", "rr", "label", "missed")
    rows = [{key: sample[key] for key in kept} for sample in samples]
    batch = {key: torch.stack([row[key] for row in rows]).numpy() for key in kept}
    measures = MeasureTool()(batch["strip"][:, 0], batch["peaks"], batch["mask"], batch["rr"], FS)
    before, after = (round(s * FS) for s in BEAT_S)
    at = batch["peaks"][..., None] + np.arange(-before, after + 1, EVERY)
    signal = batch["signal"][:, 0]
    beats = signal[np.arange(len(signal))[:, None, None], at.clip(0, signal.shape[1] - 1)]
    return {
        "measures": measures,
        "samples": beats,
        "both": np.concatenate([measures, beats], axis=-1),
        "label": batch["label"],
        "missed": batch["missed"],
    }


def _boosting(seed: int) -> Any:
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
    except ImportError as error:
        raise ZooError('This needs scikit-learn: pip install "lightning-zoo[peers]".') from error
    return HistGradientBoostingClassifier(
        max_iter=200, learning_rate=0.1, class_weight="balanced", random_state=seed
    )
