"""DeltaLM: a language model trained with the delta rule's momentum, as a LightningModule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.text import Perplexity

from zoo.atomic import write_text
from zoo.base import ZooModule
from zoo.delta_momentum.network import Decoder, Shape
from zoo.delta_momentum.text import ByteCodec, TextCodec, TokenizerCodec
from zoo.errors import ZooError, did_you_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRESETS = {
    "tiny": Shape(width=96, layers=3, heads=4, hidden=256, vocab_size=128, context=128),
    "67M": Shape(width=384, layers=24, heads=6, hidden=1024, vocab_size=32000, context=2048),
    "370M": Shape(width=1024, layers=24, heads=16, hidden=2730, vocab_size=32000, context=2048),
}


def token_loss(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Cross-entropy in nats, in float32.

    Args:
        logits: Shape: (B, T, V).
        targets: Shape: (B, T).
        reduction: "mean" over all tokens, or "none" for (B, T).
    """
    return F.cross_entropy(logits.float().transpose(1, 2), targets, reduction=reduction)


class TokenLoss(MeanMetric):
    """Mean cross-entropy over tokens, fed with logits and targets.

    Args:
        unit: Nats in the reported unit: 1, or ln 2 for bits.
    """

    def __init__(self, unit: float = 1.0) -> None:
        super().__init__()
        self.unit = unit

    def update(self, logits: Tensor, targets: Tensor) -> None:  # type: ignore[override]
        """Adds a batch. Shapes: (B, T, V) and (B, T)."""
        super().update(token_loss(logits, targets, "none") / self.unit)


class DeltaLM(ZooModule):
    """A decoder for text; which optimiser trains it is the config's affair.

    Args:
        preset: "tiny", "67M" or "370M": the sizes that the next arguments change.
        vocab_size: V; 128 for bytes.
        width: d.
        layers: L.
        heads: Of attention; d / heads must be even.
        hidden: Of the gated MLP.
        context: T, tokens that the model looks back on.
        mup: Maximal update parametrisation: a learning rate found at ``base_width`` is right at
            any width.
        base_width: ``None`` for the preset's.
        tokenizer: ``None`` for bytes, else a ``tokenizers`` JSON file or a hub repository with one;
            only text in and out needs it.
        checkpointing: Recompute the blocks in the backward pass.
        max_new_tokens: That ``zoo predict`` continues each input by.

    Raises:
        ZooError: For an unknown preset or sizes that do not fit each other.
    """

    monitor: ClassVar[tuple[str, str]] = ("val_loss", "min")
    optimizer_config: Mapping[str, Any] = {
        "class_path": "zoo.optim.DeltaAdamW",
        "init_args": {"lr": 1e-2},
    }

    def __init__(
        self,
        preset: str = "tiny",
        vocab_size: int | None = None,
        width: int | None = None,
        layers: int | None = None,
        heads: int | None = None,
        hidden: int | None = None,
        context: int | None = None,
        mup: bool = False,
        base_width: int | None = None,
        tokenizer: str | None = None,
        checkpointing: bool = False,
        max_new_tokens: int = 256,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        if preset not in PRESETS:
            hint = did_you_mean(preset, PRESETS)
            raise ZooError(f"preset={preset!r} is unknown: there are {', '.join(PRESETS)}.{hint}")
        base = PRESETS[preset]
        given = {
            "width": width,
            "layers": layers,
            "heads": heads,
            "hidden": hidden,
            "vocab_size": vocab_size,
            "context": context,
        }
        self.shape = Shape(**{k: getattr(base, k) if v is None else v for k, v in given.items()})
        _check(self.shape)
        self.tokenizer, self.max_new_tokens = tokenizer, max_new_tokens
        self._codec: TextCodec | None = None
        self.network = Decoder(self.shape, mup, base_width or base.width, checkpointing)
        bits = "bits_per_byte" if tokenizer is None else "bits_per_token"
        self.measure(
            MetricCollection(
                {
                    "loss": TokenLoss(),
                    bits: TokenLoss(math.log(2)),
                    "perplexity": Perplexity(),
                },
                compute_groups=False,
            )
        )

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of the next token at each position.

        Args:
            ids: Tokens in 0..V - 1, int64, at most ``context`` of them. Shape: (B, T).

        Returns:
            Shape: (B, T, V).
        """
        logits: Tensor = self.network(ids)
        return logits

    # -- training ----------------------------------------------------------------------------

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Groups for the optimiser: muP scales the learning rate of the hidden matrices."""
        return self.network.groups(lr)

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """Mean cross-entropy of the next token."""
        ids = batch["ids"]  # (B, T + 1)
        loss = token_loss(self(ids[:, :-1]), ids[:, 1:])
        self.log("train_loss", loss, prog_bar=True, batch_size=len(ids))
        return loss

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """Updates the metrics; returns the logits."""
        return self._evaluate(batch, self.val_metrics)

    def test_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """Updates the metrics; returns the logits."""
        return self._evaluate(batch, self.test_metrics)

    def _evaluate(self, batch: Mapping[str, Any], metrics: MetricCollection) -> Tensor:
        ids = batch["ids"]
        logits: Tensor = self(ids[:, :-1])
        metrics.update(logits.float(), ids[:, 1:])
        return logits

    # -- use ---------------------------------------------------------------------------------

    @property
    def codec(self) -> TextCodec:
        """Text to ids and back; a tokenizer is loaded at its first use."""
        if self._codec is None:
            self._codec = ByteCodec() if self.tokenizer is None else TokenizerCodec(self.tokenizer)
        return self._codec

    def generate(
        self,
        prompt: str,
        max_new_tokens: int = 256,
        temperature: float = 0.8,
        top_k: int | None = 40,
        seed: int = 0,
    ) -> str:
        """Continues a text.

        Args:
            prompt: ASCII for a byte model; an empty one stands for a new line.
            max_new_tokens: How many to add.
            temperature: Divides the logits; 0 takes the likeliest token each time.
            top_k: Draw among so many likeliest tokens; ``None`` among all.
            seed: Of the draws.

        Returns:
            The continuation, without the prompt.

        Raises:
            ZooError: For a character outside the vocabulary or numbers out of range.
        """
        if max_new_tokens < 1 or temperature < 0 or (top_k is not None and top_k < 1):
            raise ZooError(
                f"generate(max_new_tokens={max_new_tokens}, temperature={temperature}, "
                f"top_k={top_k}): counts must be at least 1, the temperature not negative."
            )
        ids = self._encode(prompt or "\n")
        start = ids.shape[1]
        rng = torch.Generator(self.device).manual_seed(seed)
        with self.evaluating():
            for _ in range(max_new_tokens):
                logits = self(ids[:, -self.shape.context :])[0, -1].float()
                ids = torch.cat([ids, _draw(logits, temperature, top_k, rng)[None]], dim=1)
        return self.codec.decode(ids[0, start:].tolist())

    def predict(self, prompt: str, max_new_tokens: int = 256, seed: int = 0) -> str:
        """Continues a text: :meth:`generate` with its default temperature."""
        return self.generate(prompt, max_new_tokens, seed=seed)

    def bits_per_byte(self, text: str) -> float:
        """How many bits the model needs for a byte of ``text``, on average.

        Windows overlap by half, so that all but the first have at least half a context before them.

        Raises:
            ZooError: If a character is outside the vocabulary, or the text has fewer than two
                tokens.
        """
        ids = self._encode(text)[0]
        if len(ids) < 2:
            raise ZooError("bits_per_byte needs a text of two tokens or more.")
        stride, total, scored = max(1, self.shape.context // 2), 0.0, 1
        with self.evaluating():
            while scored < len(ids):
                end = min(len(ids), scored + stride)
                window = ids[max(0, end - 1 - self.shape.context) : end][None]
                losses = token_loss(self(window[:, :-1]), window[:, 1:], "none")
                total += float(losses[0, -(end - scored) :].sum())
                scored = end
        size = len(text.encode("utf-8")) - len(self.codec.decode(ids[:1].tolist()).encode("utf-8"))
        return total / max(1, size) / math.log(2)

    def _encode(self, text: str) -> Tensor:
        ids = self.codec.encode(text)
        if ids and max(ids) >= self.shape.vocab_size:
            raise ZooError(
                f"The text has the token {max(ids)}, but this model's vocabulary has "
                f"{self.shape.vocab_size}: is it the tokenizer that it was trained with?"
            )
        return torch.tensor([ids], dtype=torch.long, device=self.device)

    def predict_step(self, batch: Mapping[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """Continuations of the texts of the inputs."""
        return [
            {"name": name, "text": text + self.generate(text, self.max_new_tokens)}
            for name, text in zip(batch["name"], batch["text"], strict=True)
        ]

    def write_prediction(self, prediction: Mapping[str, Any], path: Path) -> list[Path]:
        """Writes ``<name>.txt``: the input and its continuation."""
        path = path.with_name(f"{path.name}.txt")
        write_text(path, prediction["text"])
        return [path]

    def example_inputs(self) -> dict[str, Tensor]:
        """The first ids in a row, twice, the second time backwards."""
        length = min(16, self.shape.context)
        ids = torch.arange(length) % self.shape.vocab_size
        return {"ids": torch.stack([ids, ids.flip(0)])}

    def figures(self, batch: Mapping[str, Any], outputs: Tensor) -> dict[str, Figure]:
        """The first window, each character on the colour of the bits that it took."""
        from zoo.delta_momentum.figure import surprisal

        ids = batch["ids"][0].cpu()
        bits = token_loss(outputs[:1].cpu(), ids[None, 1:], "none")[0] / math.log(2)
        pieces = [self.codec.decode([i]) for i in ids[1:].tolist()]
        return {"surprisal": surprisal(pieces, bits)}


def _draw(logits: Tensor, temperature: float, top_k: int | None, rng: torch.Generator) -> Tensor:
    if temperature == 0:
        return logits.argmax(keepdim=True)
    if top_k is not None and top_k < len(logits):
        floor = logits.topk(top_k).values[-1]
        logits = logits.masked_fill(logits < floor, -torch.inf)
    return torch.multinomial((logits / temperature).softmax(0), 1, generator=rng)


def _check(shape: Shape) -> None:
    for name in ("width", "layers", "heads", "hidden", "vocab_size", "context"):
        if getattr(shape, name) < 1:
            raise ZooError(f"{name}={getattr(shape, name)} must be at least 1.")
    if shape.width % (2 * shape.heads):
        raise ZooError(
            f"width={shape.width} must be a multiple of twice heads={shape.heads}: rotary "
            "positions turn pairs of a head's channels."
        )
