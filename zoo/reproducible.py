"""Makes an epoch's randomness a function of seed, epoch and rank alone.

Then a run that was killed and resumed from its last checkpoint draws what an unbroken one would
have drawn, and what happens between epochs (validation, pictures) changes nothing.
"""

import os
import random

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer


def global_seed() -> int | None:
    """The seed given to ``seed_everything``, or ``None`` if there was none."""
    seed = os.environ.get("PL_GLOBAL_SEED")
    return int(seed) if seed is not None else None


def generator(*key: int) -> torch.Generator:
    """Returns a CPU generator whose stream is a function of all the numbers of ``key``."""
    # PyTorch uses only the low 32 bits of a seed, so the key is hashed to 32 bits first.
    return torch.Generator().manual_seed(int(np.random.SeedSequence(key).generate_state(1)[0]))


class EpochSeed(Callback):
    """Seeds Python, numpy and torch anew at the start of each training epoch."""

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Mixes seed, epoch and rank into one number."""
        seed = global_seed()
        if seed is None:
            return
        sequence = np.random.SeedSequence([seed, trainer.current_epoch, trainer.global_rank])
        state = int(sequence.generate_state(1)[0])
        random.seed(state)
        np.random.seed(state)  # noqa: NPY002  (the global generator that libraries draw from)
        torch.manual_seed(state)
