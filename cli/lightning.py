"""``zoo fit|validate|test|predict``: LightningCLI with the zoo's defaults."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch
from lightning import Callback, LightningDataModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint, ProgressBar, RichProgressBar
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from zoo.base import ZooModule, weights_follow
from zoo.callbacks import FigureSaver, MetricsRecord, PredictionWriter
from zoo.catalog import get_method, method_class
from zoo.checkpoint import read_checkpoint
from zoo.cli.configs import import_classes, resolve_config_paths
from zoo.cli.messages import explain
from zoo.errors import ZooError
from zoo.hub import PublishedCheckpointIO, is_published, read_published

RUNS = "runs"  # where run folders go, below trainer.default_root_dir or the working folder


def run(args: Sequence[str]) -> None:
    """Runs one of LightningCLI's subcommands.

    Args:
        args: The subcommand and its options.

    Raises:
        ZooError: What the user can mend.
    """
    _silence(args[0])
    resolved, configs = resolve_config_paths(args)
    import_classes(resolved, configs)
    ZooCLI(resolved)
    _leave_process_group()


class ZooParser(LightningArgumentParser):
    """Says what is wrong in one sentence, with the nearest valid name."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raises a :class:`~zoo.errors.ZooError`, unless it is asked about one of several types."""
        if not self.exit_on_error:
            super().error(message, ex)
        parsers = [self]
        for action in self._actions:
            if isinstance(action.choices, dict):  # the subcommands
                parsers += action.choices.values()
        options = {name for parser in parsers for name in parser._option_string_actions}
        raise ZooError(explain(message, [name.lstrip("-") for name in options])) from ex


class ZooCLI(LightningCLI):
    """LightningCLI for the methods of the catalogue.

    What need not stand in any YAML: seed 0; checkpoints of the best epoch by the method's
    ``monitor`` and of the last one; CSV and TensorBoard logs, figures and ``metrics.json`` in one
    run folder; a rich progress bar. A callback of the same class in the YAML, or ``logger``,
    replaces the default one.
    """

    model: ZooModule

    def __init__(self, args: Sequence[str]) -> None:
        self.command = args[0]
        self.typed = [
            match[1]
            for match in (re.match(r"--model\.(?:init_args\.)?(\w+)", arg) for arg in args)
            if match
        ]
        super().__init__(
            ZooModule,
            LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            save_config_kwargs={"config_filename": _config_name(self.command), "overwrite": True},
            seed_everything_default=0,
            trainer_defaults={"max_epochs": 10},
            parser_class=ZooParser,
            parser_kwargs={"allow_abbrev": False},
            # Checkpoints hold the plain init arguments: no function in the file rebuilds the class.
            load_from_checkpoint_support=False,
            args=list(args),
        )

    # -- options -----------------------------------------------------------------------------

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Adds the zoo's own options."""
        parser.add_argument(
            "--lr_scheduler_interval",
            type=Literal["epoch", "step"],
            default="epoch",
            help="Step the scheduler once an epoch or once an optimiser step.",
        )
        parser.add_argument(
            "--lr_scheduler_frequency", type=int, default=1, help="Of these intervals."
        )
        if self.command == "fit":
            parser.add_argument(
                "--test_after_fit", type=bool, default=True, help="Test the best checkpoint."
            )
        if self.command == "predict":
            parser.add_argument(
                "--output", type=str, default="predictions", help="Folder for the predictions."
            )

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Lightning's own; checkpoints are read as plain data, so ``weights_only`` is no option."""
        return {
            name: {*skipped, "weights_only", "return_predictions"}
            for name, skipped in LightningCLI.subcommands().items()
        }

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parses what it was given, without Lightning's warning about ``sys.argv``."""
        self.config = parser.parse_args(args)

    def _parse_ckpt_path(self) -> None:
        """Builds the model with the init arguments of ``--ckpt_path``, and says what they replace.

        The file beats the YAML; an option typed on the command line beats the file.
        """
        options = self.config[self.config.subcommand]
        if not options.get("ckpt_path"):
            return
        path = options.ckpt_path
        if path in ("best", "last", "hpc", "registry"):
            return
        if is_published(path) and self.command == "fit":
            raise ZooError(f"{path} has no optimiser's state to go on from: give a .ckpt file.")
        checkpoint = read_published(path) if is_published(path) else read_checkpoint(path)
        model = options.get("model")
        cls = checkpoint.get("zoo", {}).get("class")
        if model is not None and cls is not None and model.class_path.rpartition(".")[2] != cls:
            raise ZooError(f"{path} is a checkpoint of {cls}, not of {model.class_path}.")
        wanted = dict(model.init_args) if model is not None else {}
        saved = checkpoint["hyper_parameters"]
        for name, value in saved.items():
            if name in wanted and wanted[name] != value:
                if name in self.typed:
                    rank_zero_info(
                        f"--model.{name} {wanted[name]} replaces {value} of the checkpoint {path}."
                    )
                else:
                    rank_zero_info(
                        f"model.{name} is {value} as in the checkpoint {path}, not {wanted[name]}."
                    )
        kept = {name: value for name, value in saved.items() if name not in self.typed}
        class_path = model.class_path if model is not None else _class_path(cls, path)
        self.config = self.parser.parse_object(
            {self.config.subcommand: {"model": {"class_path": class_path, "init_args": kept}}},
            self.config,
        )

    # -- what is built -----------------------------------------------------------------------

    def instantiate_classes(self) -> None:
        """Builds data, model and trainer; fetches no initial weights if a checkpoint follows."""
        follow = weights_follow if self._get(self.config, "ckpt_path") else nullcontext
        try:
            with follow():
                super().instantiate_classes()
        except ValueError as error:
            # jsonargparse reports what a constructor raised as one of several types that failed.
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            raise cause from None

    def _add_configure_optimizers_method_to_model(self, subcommand: str | None) -> None:
        """Hands the sections ``optimizer`` and ``lr_scheduler`` to the module as plain data.

        The module builds them once its parameters are final, in ``configure_optimizers``.
        """
        optimizer = self._get(self.config_init, "optimizer")
        if optimizer:
            self.model.optimizer_config = optimizer.as_dict()
        scheduler = self._get(self.config_init, "lr_scheduler")
        if scheduler:
            self.model.lr_scheduler_config = {
                **scheduler.as_dict(),
                "interval": self._get(self.config, "lr_scheduler_interval"),
                "frequency": self._get(self.config, "lr_scheduler_frequency"),
            }

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Adds the default loggers and callbacks, unless the config has its own."""
        options = self._get(self.config_init, "trainer")
        if options.get("logger") in (None, True) and not options.get("fast_dev_run"):
            root = options.get("default_root_dir") or "."
            board = TensorBoardLogger(f"{root}/{RUNS}", name=self._method_name())
            table = CSVLogger(f"{root}/{RUNS}", name=self._method_name(), version=board.version)
            options["logger"] = [board, table]
        if is_published(self._get(self.config, "ckpt_path") or ""):
            plugins = options.get("plugins") or []
            plugins = plugins if isinstance(plugins, list) else [plugins]
            options["plugins"] = [*plugins, PublishedCheckpointIO()]
        given = options.get("callbacks") or []
        given = given if isinstance(given, list) else [given]
        options["callbacks"] = [*given, *self._default_callbacks(options, given)]
        return super().instantiate_trainer(**kwargs)

    def _default_callbacks(self, options: Any, given: list[Callback]) -> list[Callback]:
        defaults: list[Callback] = [MetricsRecord(), FigureSaver()]
        if self.command == "predict":
            ckpt_path = self._get(self.config, "ckpt_path")
            defaults = [PredictionWriter(self._get(self.config, "output"), ckpt_path)]
        checkpointing = options.get("enable_checkpointing") is not False
        if self.command == "fit" and checkpointing and not _has(given, Checkpoint):
            metric, mode = self.model.monitor
            defaults.append(
                ModelCheckpoint(
                    filename=f"best-epoch{{epoch:03d}}-{metric}{{{metric}:.4f}}",
                    auto_insert_metric_name=False,
                    monitor=metric,
                    mode=mode,
                    save_last=True,
                )
            )
        if options.get("enable_progress_bar") is not False and not _has(given, ProgressBar):
            defaults.append(RichProgressBar())
        return [c for c in defaults if not _has(given, type(c))]

    def _method_name(self) -> str:
        try:
            return get_method(type(self.model).__name__).name
        except ZooError:  # a baseline or a class of the user's own
            return type(self.model).__name__.lower()

    # -- what is run -------------------------------------------------------------------------

    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        kwargs = super()._prepare_subcommand_kwargs(subcommand)
        kwargs["weights_only"] = True
        if subcommand == "predict":
            kwargs["return_predictions"] = False
        return kwargs

    def before_test(self) -> None:
        """Warns if the weights were never trained."""
        if not self._get(self.config, "ckpt_path") and any(True for _ in self.model.parameters()):
            rank_zero_warn("No --ckpt_path: these are the figures of untrained weights.")

    def before_predict(self) -> None:
        """Refuses to write predictions of weights that were never trained."""
        trained = (
            self._get(self.config, "ckpt_path") or self._get(self.config, "trainer").fast_dev_run
        )
        if not trained and any(True for _ in self.model.parameters()):
            raise ZooError("zoo predict needs trained weights: give --ckpt_path.")

    def after_fit(self) -> None:
        """Tests the best checkpoint, and says where the run folder is."""
        if self._get(self.config, "test_after_fit") and not self.trainer.interrupted:
            best = getattr(self.trainer.checkpoint_callback, "best_model_path", "")
            self.trainer.test(
                self.model,
                datamodule=self.datamodule,
                ckpt_path=best or None,
                weights_only=True,
            )
        self._say_where("Run folder")
        self._say_reference()

    def after_test(self) -> None:
        """Says where the metrics and figures are."""
        self._say_where("Run folder")

    def after_predict(self) -> None:
        """Says where the predictions are."""
        if self.trainer.is_global_zero:
            sys.stdout.write(f"Predictions: {Path(self._get(self.config, 'output')).resolve()}\n")

    def _say_reference(self) -> None:
        """Sets what was measured for the card beside the run's own figures."""
        try:
            card = get_method(type(self.model).__name__).result
        except ZooError:  # a baseline or a class of the user's own
            return
        if self.trainer.is_global_zero:
            sys.stdout.write(
                f"The card has, with the default config, {card['metric']}: {card['value']} "
                f"({card['baseline']})\n"
            )

    def _say_where(self, what: str) -> None:
        folder = self.trainer.log_dir  # broadcasts, so every rank asks
        if self.trainer.is_global_zero and self.trainer.loggers and folder is not None:
            sys.stdout.write(f"{what}: {Path(folder).resolve()}\n")


def _config_name(command: str) -> str:
    return "training.yaml" if command == "fit" else f"{command}.yaml"


def _class_path(cls: str | None, path: str) -> str:
    if cls is None:
        raise ZooError(f"{path} names no method: give --model or --config.")
    found = method_class(cls)
    return f"{found.__module__}.{found.__qualname__}"


def _has(callbacks: list[Callback], cls: type) -> bool:
    return any(isinstance(c, cls) for c in callbacks)


def _leave_process_group() -> None:
    """Ends the threads of gloo while there is an interpreter.

    One that frees a tensor later asks the interpreter for leave, which may be gone: then a run that
    has done all its work ends with "terminate called without an active exception" and code -6.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _silence(command: str) -> None:
    """Silences what is of no use here: recommended services, and one run folder for all loggers."""
    log = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    log.addFilter(_no_tip)
    warnings.filterwarnings("ignore", "Experiment logs directory .* exists and is not empty")
    # A resumed run has a run folder of its own, where the search for the best begins anew.
    warnings.filterwarnings("ignore", "The dirpath has changed from")
    if command != "fit":  # the callbacks of training have nothing to do there
        warnings.filterwarnings("ignore", ".*callbacks used to create the checkpoint need to be")
    # Lightning 2.6 asks torch's pytree in a way that newer releases deprecate.
    warnings.filterwarnings("ignore", ".*LeafSpec")


def _no_tip(record: logging.LogRecord) -> bool:
    return "Tip:" not in record.getMessage()
