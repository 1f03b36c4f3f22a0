"""Publishes the tested checkpoint to the hub at the end of a run, once, from rank zero."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

from huggingface_hub import get_token
from lightning import Callback, LightningModule, Trainer

from zoo.card import check_license
from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.base import ZooModule


class PushToHub(Callback):
    """Publishes the checkpoint that ``test`` loaded, with the metrics and figures of that test.

    ``zoo fit`` tests the best checkpoint when it is done, so that one is published. What ``zoo
    push`` would refuse is refused here before the training starts, as far as it is known by then.

    Args:
        repo_id: ``org/name``; made if need be.
        license: Of the weights, as an SPDX identifier.
        branch: Other than main; made if need be.
        private: Make the repository private.
    """

    def __init__(
        self, repo_id: str, license: str, branch: str | None = None, private: bool = False
    ) -> None:
        self.repo_id = repo_id
        self.license = license
        self.branch = branch
        self.private = private

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuses an unknown licence or a missing token, on every rank."""
        check_license(self.license)
        if get_token() is None:
            raise ZooError(
                f"Pushing to {self.repo_id} needs a token: log in with 'hf auth login' "
                "or set HF_TOKEN."
            )

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """After the test, when every callback has written what it writes."""
        if stage != "test" or not trainer.is_global_zero or getattr(trainer, "fast_dev_run", False):
            return
        from zoo.publish import publish

        checkpoint = trainer.ckpt_path
        if not checkpoint:
            raise ZooError("PushToHub publishes a checkpoint, but this test loaded none.")
        try:
            published = publish(
                cast("type[ZooModule]", type(pl_module)),
                checkpoint,
                self.repo_id,
                license=self.license,
                branch=self.branch,
                private=self.private,
            )
        except ZooError as error:
            raise ZooError(
                f"{str(error).rstrip('.')}. Nothing is lost: 'zoo push' takes {checkpoint}."
            ) from error
        sys.stdout.write(f"Published: {published}\n")
