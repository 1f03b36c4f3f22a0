"""Records a test run in ``metrics.json``: the figures, and everything needed to trust them."""

from __future__ import annotations

import math
import os
import platform
import resource
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_warn

from zoo._version import __version__
from zoo.atomic import write_json
from zoo.datamodules import ZooDataModule
from zoo.remote import sha256
from zoo.reproducible import global_seed


class MetricsRecord(Callback):
    """Writes ``<run folder>/metrics.json`` after ``test``.

    It holds the metrics with data, split, seed, checkpoint, hardware, versions, commit and date,
    and, if the same process trained the model, the seconds and peak memory that this took.
    """

    def __init__(self) -> None:
        self.training: dict[str, Any] = {}
        self._started = 0.0

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the clock."""
        self._started = time.monotonic()
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stops the clock."""
        self.training = {
            "seconds": round(time.monotonic() - self._started, 1),
            "steps": trainer.global_step,
            "epochs": trainer.current_epoch,
            **peak_memory(),
        }

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the file."""
        if not trainer.is_global_zero or not trainer.loggers:
            return
        folder = Path(trainer.loggers[0].log_dir or trainer.default_root_dir)
        data = getattr(trainer, "datamodule", None)
        metrics = {
            name: float(v)
            for name, v in trainer.callback_metrics.items()
            if name.startswith("test_")
        }
        unknown = sorted(name for name, value in metrics.items() if not math.isfinite(value))
        if unknown:  # JSON has no NaN; what was not measured is absent
            rank_zero_warn(
                f"{', '.join(unknown)} are no finite numbers, so they are left out of metrics.json"
                ": nothing was measured, or it diverged."
            )
        record = {
            "class": type(pl_module).__name__,
            "metrics": {name: v for name, v in metrics.items() if name not in unknown},
            "data": data.describe() if isinstance(data, ZooDataModule) else None,
            "split": "test",
            "seed": global_seed(),
            **_checkpoint(trainer.ckpt_path),
            "devices": trainer.world_size,
            "training": self.training or None,
            **provenance(),
        }
        write_json(folder / "metrics.json", record)


def _checkpoint(path: str | Path | None) -> dict[str, str | None]:
    """The checkpoint that was tested, with its hash, by which a push knows its own record."""
    digest = sha256(Path(path)) if path is not None and Path(path).is_file() else None
    return {"checkpoint": str(path) if path else None, "checkpoint_sha256": digest}


def peak_memory() -> dict[str, float]:
    """Peak memory of this process in MiB: resident, and on the GPU if there is one."""
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, KiB here
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    peak = {"peak_rss_mib": round(resident, 1)}
    if torch.cuda.is_available():
        peak["peak_cuda_mib"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
    return peak


def provenance() -> dict[str, Any]:
    """Hardware, versions, commit and date of a measurement."""
    cpu = f"{os.cpu_count()} CPU cores, {platform.machine()}"
    return {
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else cpu,
        "versions": {
            "zoo": __version__,
            "torch": torch.__version__,
            "lightning": lightning.__version__,
            "python": platform.python_version(),
        },
        "commit": _commit(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _commit() -> str | None:
    """The commit of the source tree that this code runs from; ``None`` if it was installed."""
    here = Path(__file__).resolve().parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None
