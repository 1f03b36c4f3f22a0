"""A causal language model as a policy: sampling with a kept cache, log-probabilities, scores."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from zoo.agents.codec import Codec
from zoo.agents.model import LoraArgs as LoraArgs
from zoo.agents.model import PolicyArgs as PolicyArgs
from zoo.agents.model import TinyConfig as TinyConfig
from zoo.agents.model import adapted_model, fetched_model, tiny_model
from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.agents.rollout import Rollout

WIDE = 4096  # entries: larger vocabularies are never materialised for a whole batch
CHUNK = 2**24  # logits at a time then: 64 MiB
RESHAPED = ("final_logit_softcapping", "logits_scaling", "logit_scale")  # after the last matrix


class LogProbs(NamedTuple):
    """Log-probabilities of tokens; 0 where there is no token.

    Attributes:
        values: Of the tokens themselves. Shape: (B, T), float32.
        mask: Which tokens are there. Shape: (B, T), bool.
        entropy: Of the next token's distribution, nats; ``None`` unless asked for. Shape: (B, T).
        full: Of all tokens; ``None`` unless asked for. Shape: (B, T, V).
    """

    values: Tensor
    mask: Tensor
    entropy: Tensor | None = None
    full: Tensor | None = None


class CausalPolicy(nn.Module):
    """A language model that acts, and says how likely its actions were.

    Args:
        args: Which model.
        fetch: Fetch its weights; not if a checkpoint with all of them follows. A model under
            adapters is always fetched, since checkpoints hold the adapters alone.

    Raises:
        ZooError: If the model can't be fetched, or transformers or peft is missing.
    """

    def __init__(self, args: PolicyArgs, fetch: bool = True) -> None:
        super().__init__()
        self.args = args = PolicyArgs.of(args)
        if args.tiny is not None:
            self.codec = Codec.of_words(args.tiny.vocabulary, args.tiny.context)
            self.model: Any = tiny_model(args, self.codec.tokenizer)
            self.max_context = min(args.max_context, args.tiny.context)
        else:
            source = args.tokenizer_id or str(args.model_id)
            self.codec = Codec.fetch(source, args.revision)
            self.model = fetched_model(args, fetch or args.lora is not None)
            self.codec.stop_at(getattr(self.model, "generation_config", None))
            self.max_context = args.max_context
        if args.gradient_checkpointing:
            # Its name since transformers 5.24, where the old one warns.
            enable = getattr(self.model, "activation_checkpointing_enable", None)
            (enable or self.model.gradient_checkpointing_enable)({"use_reentrant": False})
        if args.lora is not None:
            self.model = adapted_model(self.model, args.lora)
            if args.gradient_checkpointing:
                self.model.enable_input_require_grads()
        config = self.base.config
        self._reshaped = any(getattr(config, name, None) not in (None, 1.0) for name in RESHAPED)
        names = inspect.signature(self.base.forward).parameters
        self.cache_argument = "cache" if "cache" in names else "past_key_values"

    # -- parts -------------------------------------------------------------------------------

    @property
    def base(self) -> Any:
        """The transformers model, with its adapters in place if there are any."""
        return self.model.get_base_model() if self.args.lora is not None else self.model

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        found: torch.device = next(self.model.parameters()).device
        return found

    def trainable(self) -> list[str]:
        """Names of the submodules that train: the adapters, or all of it (an empty name)."""
        if self.args.lora is None:
            return [""]
        return [n for n, _ in self.named_modules() if n.endswith(("lora_A", "lora_B"))]

    def frozen(self) -> list[str]:
        """Names of the submodules that are fetched again, not saved: all but the adapters."""
        if self.args.lora is None:
            return []
        return [
            name
            for name, module in self.named_modules()
            if "lora_" not in name and any(True for _ in module.parameters(recurse=False))
        ]

    @contextmanager
    def adapters_off(self) -> Iterator[None]:
        """Inside, the model is the one that the adapters were put on: the reference policy."""
        with self.model.disable_adapter() if self.args.lora is not None else nullcontext():
            yield

    def save_pretrained(self, folder: str) -> None:
        """Writes model and tokenizer as transformers reads them: for vLLM, llama.cpp and others.

        Adapters are merged into a copy's weights only by ``peft``; here they are written as such.
        """
        self.model.save_pretrained(folder, safe_serialization=True)
        self.codec.tokenizer.save_pretrained(folder)

    # -- text --------------------------------------------------------------------------------

    @property
    def tokenizer(self) -> Any:
        """Of transformers."""
        return self.codec.tokenizer

    @property
    def stop_ids(self) -> list[int]:
        """Tokens that end a response."""
        return self.codec.stop_ids

    @property
    def pad_id(self) -> int:
        """What fills up short rows; it is always masked."""
        return self.codec.pad_id

    def encode_prompt(self, text: str, first: bool = True) -> list[int]:
        """See :meth:`zoo.agents.codec.Codec.encode_prompt`."""
        return self.codec.encode_prompt(text, first)

    def encode_reply(self, text: str) -> list[int]:
        """See :meth:`zoo.agents.codec.Codec.encode_reply`."""
        return self.codec.encode_reply(text)

    def decode(self, rows: Sequence[Sequence[int]] | Tensor) -> list[str]:
        """Texts of token rows, without special tokens."""
        return self.codec.decode(rows)

    # -- tensors -----------------------------------------------------------------------------

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits of the next token; rows may be padded on either side.

        Args:
            input_ids: Shape: (B, T).
            attention_mask: 1 on tokens, 0 on padding; ``None`` for no padding. Shape: (B, T).

        Returns:
            Shape: (B, T, V).
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
        out = self.model(
            input_ids=input_ids, attention_mask=mask, position_ids=positions(mask), use_cache=False
        )
        logits: Tensor = out.logits
        return logits

    def hidden(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """What the last matrix turns into logits. Shape: (B, T) to (B, T, D)."""
        mask = attention_mask.long()
        decoder = getattr(self.base, self.base.base_model_prefix)
        out = decoder(
            input_ids=input_ids, attention_mask=mask, position_ids=positions(mask), use_cache=False
        )
        hidden: Tensor = out.last_hidden_state
        return hidden

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        temperature: float = 1.0,
        top_p: float = 1.0,
        stop_ids: Sequence[int] | None = None,
        generator: torch.Generator | None = None,
        keys: Tensor | None = None,
        use_cache: bool = True,
    ) -> Rollout:
        """Answers prompts: see :meth:`zoo.agents.rollout.Session.sample`."""
        from zoo.agents.rollout import Session

        session = Session(self, use_cache)
        session.append(prompts)
        return session.sample(max_new_tokens, temperature, top_p, stop_ids, generator, keys)

    def token_logprobs(
        self,
        ids: Tensor,
        mask: Tensor,
        wanted: Tensor,
        temperature: float = 1.0,
        entropy: bool = False,
    ) -> LogProbs:
        """Log-probabilities of some tokens of sequences, each given all before it.

        Only the wanted positions reach the vocabulary; one that is wider than 4096 is not
        materialised for the whole batch, nor kept for the backward pass.

        Args:
            ids: Shape: (B, T).
            mask: 1 on tokens, 0 on padding. Shape: (B, T).
            wanted: Whose log-probabilities; never the first token. Shape: (B, T), bool.
            temperature: Divides the logits, as in sampling.
            entropy: Give that too.

        Returns:
            Of shape (B, T), 0 where not wanted.
        """
        chosen, targets = wanted[:, 1:], ids[:, 1:][wanted[:, 1:]]
        if self._reshaped:
            rows = self.forward(ids, mask)[:, :-1][chosen]  # (N, V)
            found, spread = _of_logits(rows, targets, temperature, entropy)
        else:
            rows = self.hidden(ids, mask)[:, :-1][chosen]  # (N, D)
            found, spread = self._of_hidden(rows, targets, temperature, entropy)
        blank = torch.zeros(chosen.shape, device=ids.device)
        values = F.pad(blank.masked_scatter(chosen, found), (1, 0))
        entropies = F.pad(blank.masked_scatter(chosen, spread), (1, 0)) if entropy else None
        return LogProbs(values, wanted, entropies)

    def logprobs(
        self,
        prompt_ids: Sequence[Sequence[int]],
        response_ids: Sequence[Sequence[int]],
        temperature: float = 1.0,
        return_entropy: bool = False,
        return_full: bool = False,
        micro_batch: int | None = None,
    ) -> LogProbs:
        """Log-probabilities of responses, right-padded.

        Args:
            prompt_ids: B prompts.
            response_ids: Their responses.
            temperature: Divides the logits.
            return_entropy: Give the entropy too.
            return_full: Give all tokens' log-probabilities too.
            micro_batch: Rows at a time; ``None`` for all.
        """
        parts = []
        size = micro_batch or max(1, len(prompt_ids))
        length = max((len(r) for r in response_ids), default=0)
        for start in range(0, len(prompt_ids), size):
            prompts = prompt_ids[start : start + size]
            responses = response_ids[start : start + size]
            rows = [[*p, *r] for p, r in zip(prompts, responses, strict=True)]
            ids, mask = pad_rows(rows, self.pad_id, self.device)
            begin = torch.tensor([len(p) for p in prompts], device=self.device)
            index = begin[:, None] + torch.arange(length, device=self.device)  # (B, T)
            sizes = torch.tensor([len(r) for r in responses], device=self.device)
            there = torch.arange(length, device=self.device) < sizes[:, None]
            index = index.clamp_max(ids.shape[1] - 1)
            if return_full:
                logits = self.forward(ids, mask).float() / temperature
                every = logits.log_softmax(dim=-1)
                full = every.gather(1, (index - 1)[..., None].expand(-1, -1, every.shape[-1]))
                full = full.masked_fill(~there[..., None], 0)
                values = full.gather(2, ids.gather(1, index)[..., None])[..., 0]
                entropy = -(full.exp() * full).sum(dim=-1) if return_entropy else None
                parts.append(LogProbs(values, there, entropy, full))
                continue
            wanted = torch.zeros_like(mask, dtype=torch.bool).scatter(1, index, there)
            found = self.token_logprobs(ids, mask, wanted, temperature, return_entropy)
            values = found.values.gather(1, index).masked_fill(~there, 0)
            spread = found.entropy
            if spread is not None:
                spread = spread.gather(1, index).masked_fill(~there, 0)
            parts.append(LogProbs(values, there, spread))
        first = parts[0]
        return LogProbs(
            torch.cat([p.values for p in parts]),
            torch.cat([p.mask for p in parts]),
            None if first.entropy is None else torch.cat([p.entropy for p in parts]),  # type: ignore[misc]
            None if first.full is None else torch.cat([p.full for p in parts]),  # type: ignore[misc]
        )

    @torch.no_grad()
    def score(self, prompt: Sequence[int], candidates: Sequence[Sequence[int]]) -> Tensor:
        """Mean log-probability a token of each continuation, to choose among them. Shape: (C,)."""
        if not candidates or not all(candidates):
            raise ZooError("score needs candidates of at least one token each.")
        found = self.logprobs([prompt] * len(candidates), candidates)
        return found.values.sum(dim=1) / found.mask.sum(dim=1)

    def _of_hidden(
        self, rows: Tensor, targets: Tensor, temperature: float, entropy: bool
    ) -> tuple[Tensor, Tensor]:
        head = self.base.get_output_embeddings()

        def compute(part: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            return _of_logits(head(part), labels, temperature, entropy)

        width = head.weight.shape[0]
        if width <= WIDE or len(rows) == 0:
            return compute(rows, targets)
        size = max(1, CHUNK // width)
        parts = [
            checkpoint(compute, rows[i : i + size], targets[i : i + size], use_reentrant=False)
            for i in range(0, len(rows), size)
        ]
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])


def positions(mask: Tensor) -> Tensor:
    """Position of each token among its row's tokens; 0 on padding. Shape: (B, T)."""
    return (mask.cumsum(dim=1) - 1).clamp_min(0)


def pad_rows(
    rows: Sequence[Sequence[int]], fill: int, device: torch.device, left: bool = False
) -> tuple[Tensor, Tensor]:
    """Rows of tokens as one tensor, with its mask. Shape of both: (B, T), int64."""
    length = max((len(row) for row in rows), default=0)
    blank = [[fill] * (length - len(row)) for row in rows]
    pairs = list(zip(rows, blank, strict=True))
    ids = [[*b, *r] if left else [*r, *b] for r, b in pairs]
    mask = [[0] * len(b) + [1] * len(r) if left else [1] * len(r) + [0] * len(b) for r, b in pairs]
    shape = (len(rows), length)
    return (
        torch.tensor(ids, dtype=torch.long, device=device).view(shape),
        torch.tensor(mask, dtype=torch.long, device=device).view(shape),
    )


def _of_logits(
    logits: Tensor, targets: Tensor, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor]:
    """Log-probability of each target, and the entropy (or zeros). Shape: (N, V) to (N,)."""
    scaled = logits.float() / temperature
    if not entropy:
        found = scaled.gather(1, targets[:, None])[:, 0] - scaled.logsumexp(dim=1)
        return found, torch.zeros_like(found)
    every = scaled.log_softmax(dim=1)
    return every.gather(1, targets[:, None])[:, 0], -(every.exp() * every).sum(dim=1)
