"""``ZooModule``: what every method of the zoo shares, and no more."""

from __future__ import annotations

import inspect
import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, is_dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

import torch
from huggingface_hub import PyTorchModelHubMixin
from lightning import Callback, LightningModule
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torchmetrics import MetricCollection
from typing_extensions import Self

from zoo._version import __version__
from zoo.checkpoint import read_checkpoint
from zoo.errors import ZooError, did_you_mean
from zoo.optim import build_optimizers
from zoo.reproducible import EpochSeed
from zoo.stages import Stage, StageSwitch, train_only

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_weights_follow: ContextVar[bool] = ContextVar("weights_follow", default=False)


@contextmanager
def weights_follow() -> Iterator[None]:
    """Inside, modules are built without fetching initial weights: a checkpoint is about to follow.

    So a finished model reloads without network and without loading its backbone twice.
    """
    token = _weights_follow.set(True)
    try:
        yield
    finally:
        _weights_follow.reset(token)


class ZooModule(LightningModule, PyTorchModelHubMixin):
    """A method of the zoo.

    A subclass calls ``save_hyperparameters()`` in its ``__init__``, whose arguments are plain JSON
    values or dataclasses of them: they are the hub's ``config.json``. It says what it measures
    with :meth:`measure`, updates ``self.val_metrics`` and ``self.test_metrics`` in its steps, and
    implements ``forward``, the steps, ``predict``, :meth:`example_inputs` and :meth:`figures`.

    Attributes:
        monitor: The metric that checkpoints and early stopping follow, and "min" or "max".
        optimizer_config: ``class_path`` and ``init_args``, as in the YAML section ``optimizer``,
            which replaces it. A method that needs several overrides ``configure_optimizers``.
        lr_scheduler_config: The same for the section ``lr_scheduler``, with the keys
            ``interval``, ``frequency`` and ``monitor`` of Lightning beside them.
        training_stages: Stages of training within one ``fit``, in order; empty for one stage.
    """

    monitor: ClassVar[tuple[str, str]] = ("val_loss", "min")
    optimizer_config: Mapping[str, Any] = {"class_path": "torch.optim.AdamW"}
    lr_scheduler_config: Mapping[str, Any] | None = None
    training_stages: tuple[Stage, ...] = ()

    val_metrics: MetricCollection
    test_metrics: MetricCollection

    def __init__(self) -> None:
        super().__init__()
        self.stage_index = 0
        self.register_state_dict_post_hook(_keep_publishable)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_match_compiled)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_post_hook(_forgive_frozen)  # type: ignore[no-untyped-call]

    # -- what a method says about itself -----------------------------------------------------

    def frozen_modules(self) -> tuple[str, ...]:
        """Names of frozen pretrained submodules, which checkpoints and hub weights leave out.

        ``__init__`` fetches them by id and revision; everything else is loaded strictly.
        """
        return ()

    @abstractmethod
    def example_inputs(self) -> dict[str, Tensor]:
        """A tiny deterministic input of ``forward``, by argument name.

        It is published beside the weights with its output, to check a copy by.
        """

    def figures(self, batch: Any, outputs: Any) -> dict[str, Figure]:
        """Pictures of one batch and what ``validation_step`` or ``test_step`` returned for it."""
        return {}

    @abstractmethod
    def write_prediction(self, prediction: Mapping[str, Any], path: Path) -> list[Path]:
        """Writes the prediction of one input into files that people of the field open.

        Args:
            prediction: One entry of the list that ``predict_step`` returns.
            path: Where to, without suffix: named after the input.

        Returns:
            The files, each written whole or not at all.
        """

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Inside: eval mode, and no gradients. Afterwards every submodule has its own mode back."""
        modes = [(module, module.training) for module in self.modules()]
        try:
            with torch.inference_mode():
                self.eval()
                yield
        finally:
            for module, training in modes:
                module.training = training

    def measure(self, metrics: MetricCollection, **test_only: Any) -> None:
        """Sets ``val_metrics`` and ``test_metrics`` to clones of ``metrics``.

        Args:
            metrics: Logged as ``val_<name>`` and ``test_<name>``.
            **test_only: Further metrics of the test stage, by name.
        """
        self.val_metrics = metrics.clone(prefix="val_")
        self.test_metrics = metrics.clone(prefix="test_")
        if test_only:
            renamed = {f"test_{name}": metric for name, metric in test_only.items()}
            self.test_metrics = MetricCollection([self.test_metrics, MetricCollection(renamed)])

    @staticmethod
    def fetch_weights(pretrained: bool) -> bool:
        """Whether to fetch initial weights: not if a checkpoint follows (``weights_follow``)."""
        return pretrained and not _weights_follow.get()

    @property
    def stage(self) -> Stage:
        """The current stage of training."""
        return self.training_stages[self.stage_index]

    # -- training ----------------------------------------------------------------------------

    def configure_optimizers(self) -> Any:
        """Builds what the config (or the current stage) names, over the trainable parameters."""
        optimizer, scheduler, steps = self.optimizer_config, self.lr_scheduler_config, None
        if self.training_stages:
            optimizer = self.stage.optimizer or optimizer
            scheduler = self.stage.lr_scheduler or scheduler
            steps = self.stage.steps
        return build_optimizers(self, optimizer, scheduler, steps)

    def configure_callbacks(self) -> list[Callback]:
        """In training: seeds each epoch by its number, and switches stages if there are any."""
        if not self.trainer.training:
            return []
        return [EpochSeed(), StageSwitch()] if self.training_stages else [EpochSeed()]

    def on_validation_start(self) -> None:
        """Gives all ranks the buffers of the first, and keeps DDP from doing so at each batch.

        Ranks may differ in their number of batches: one would wait for another that is done.
        """
        wrapped = self.trainer.strategy.model
        if isinstance(wrapped, DistributedDataParallel):
            for buffer in self.buffers():
                torch.distributed.broadcast(buffer, src=0)
            wrapped.require_forward_param_sync = False

    def on_validation_end(self) -> None:
        """Lets DDP synchronise buffers again."""
        wrapped = self.trainer.strategy.model
        if isinstance(wrapped, DistributedDataParallel):
            wrapped.require_forward_param_sync = True

    def on_validation_epoch_end(self) -> None:
        """Logs ``val_metrics``: at the epoch's end, since a rank may have had no batch at all."""
        self.log_dict(self.val_metrics, prog_bar=True)

    def on_test_epoch_end(self) -> None:
        """Logs ``test_metrics``."""
        self.log_dict(self.test_metrics)

    # -- checkpoints and the hub -------------------------------------------------------------

    def init_args(self) -> dict[str, Any]:
        """The arguments of ``__init__`` as plain JSON values.

        Raises:
            ZooError: If one of them is no JSON value; it names the argument.
        """
        plain = {}
        for name, value in self.hparams.items():
            value = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
            try:
                plain[name] = json.loads(json.dumps(value))
            except TypeError as error:
                raise ZooError(
                    f"{type(self).__name__}({name}=...) is a {type(value).__name__}; to be saved, "
                    "an init argument must be made of numbers, strings, lists and dicts."
                ) from error
        return plain

    @classmethod
    def from_init_args(cls, init_args: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`init_args`.

        Raises:
            ZooError: If an argument is not one of the class's.
        """
        known = set(inspect.signature(cls.__init__).parameters) - {"self"}
        for name in init_args:
            if name not in known:
                hint = did_you_mean(name, known)
                raise ZooError(f"{cls.__name__} has no argument '{name}'.{hint}")
        types = get_type_hints(cls.__init__)
        return cls(
            **{
                name: cls._decode_arg(types[name], value) if name in types else value
                for name, value in init_args.items()
            }
        )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Leaves only plain values in the file, so that ``weights_only=True`` loads it."""
        checkpoint["hyper_parameters"] = self.init_args()
        checkpoint["zoo"] = {
            "class": type(self).__name__,
            "version": __version__,
            "stage_index": self.stage_index,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores the stage, before Lightning wraps the module and asks for its optimiser."""
        self.stage_index = checkpoint.get("zoo", {}).get("stage_index", 0)
        if self.training_stages and self.training:
            train_only(self, self.stage.train)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Loads weights; frozen parts may be missing.

        Raises:
            ZooError: If another key is missing or foreign, or a shape differs; it names the first.
        """
        try:
            return super().load_state_dict(state_dict, strict=strict, assign=assign)
        except RuntimeError as error:
            first = str(error).splitlines()[1].strip()
            raise ZooError(
                f"These are not weights of this {type(self).__name__}: {first}"
            ) from error

    @classmethod
    def load_from_checkpoint(  # type: ignore[override]
        cls, checkpoint_path: str | Path, map_location: str = "cpu", **init_args: Any
    ) -> Self:
        """Loads a Lightning checkpoint: no other argument is needed, and no code is unpickled.

        Args:
            checkpoint_path: A ``.ckpt`` file that ``zoo fit`` wrote.
            map_location: Device of the result.
            **init_args: Replace those of the file.

        Raises:
            ZooError: If the file is missing, broken, holds more than plain data, or belongs to
                another method.
        """
        checkpoint = read_checkpoint(checkpoint_path, expected_class=cls.__name__)
        with weights_follow():
            model = cls.from_init_args({**checkpoint["hyper_parameters"], **init_args})
        model.load_state_dict(checkpoint["state_dict"])
        model.on_load_checkpoint(checkpoint)
        return model.to(map_location).eval()

    # The mixin writes the card, the config and the weights through these; the zoo's own versions
    # are strict, and live beside the rest of the hub's code.

    def save_pretrained(self, save_directory: str | Path, **card: Any) -> None:
        """Writes a hub folder: weights, config, reference output and card.

        Args:
            save_directory: Created if need be.
            **card: Fields of the card, see :func:`zoo.hub.write_folder`.
        """
        from zoo.hub import write_folder

        write_folder(self, Path(save_directory), **card)

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        force_download: bool = False,
        map_location: str = "cpu",
    ) -> Self:
        """Loads a published model from a folder or a hub repository, strictly, in eval mode.

        Args:
            pretrained_model_name_or_path: A folder, or ``org/name`` or ``org/name@revision``.
            revision: Branch, tag or commit.
            token: Of the hub, for private repositories.
            cache_dir: Instead of the hub's own cache.
            local_files_only: Never ask the network.
            force_download: Fetch again what is in the cache.
            map_location: Device of the result.

        Raises:
            ZooError: If the files are missing, foreign, incomplete or of another method.
        """
        from zoo.hub import load, locate

        folder = locate(
            pretrained_model_name_or_path,
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            force_download=force_download,
        )
        return load(folder, expected=cls).to(map_location)


# -- state dict hooks: what is saved, and what loading may miss ---------------------------------


def _keep_publishable(module: nn.Module, state: dict[str, Any], prefix: str, _meta: Any) -> None:
    """Drops frozen parts and the marks that ``torch.compile`` leaves in names."""
    assert isinstance(module, ZooModule)
    frozen = tuple(f"{prefix}{name}." for name in module.frozen_modules())
    for key in [k for k in state if k.startswith(prefix)]:
        clean = key.replace("_orig_mod.", "")
        if clean.startswith(frozen):
            del state[key]
        elif clean != key:
            state[clean] = state.pop(key)


def _match_compiled(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Renames the incoming keys to those of a module that has been compiled meanwhile."""
    for name, _tensor in chain(module.named_parameters(), module.named_buffers()):
        if "_orig_mod." in name:
            clean = prefix + name.replace("_orig_mod.", "")
            if clean in state:
                state[prefix + name] = state.pop(clean)


def _forgive_frozen(module: nn.Module, keys: Any) -> None:
    """Takes the frozen parts from the list of missing keys: they are never in the file."""
    assert isinstance(module, ZooModule)
    frozen = tuple(f".{name}." for name in module.frozen_modules())
    keys.missing_keys[:] = [
        key
        for key in keys.missing_keys
        if not any(part in f".{key.replace('_orig_mod.', '')}" for part in frozen)
    ]
