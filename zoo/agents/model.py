"""Which language model acts, and where it comes from."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import torch

from zoo.errors import ZooError, check_choice, did_you_mean, missing_extra

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass
class TinyConfig:
    """A Llama with random weights and one token a word.

    Attributes:
        vocabulary: Words, or texts made of them; usually an environment's ``vocabulary()``.
        hidden: Width.
        layers: Blocks.
        heads: Of attention.
        ffn: Width of the gated MLP.
        context: Positions.
    """

    vocabulary: list[str] = field(default_factory=list)
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    ffn: int = 192
    context: int = 512


@dataclass
class LoraArgs:
    """Low-rank adapters on a frozen model (arXiv 2106.09685).

    Attributes:
        r: Rank.
        alpha: The update is scaled by alpha / r.
        targets: Names of linear layers, or "all-linear": all but the head.
    """

    r: int = 16
    alpha: int = 32
    targets: str | list[str] = "all-linear"


@dataclass
class PolicyArgs:
    """Which language model acts.

    Attributes:
        model_id: Hub id or folder; ``None`` for the tiny one.
        revision: Branch, tag or commit on the hub.
        tokenizer_id: Where it differs from ``model_id``.
        tiny: Sizes of the tiny model; ``None`` with a ``model_id``.
        lora: Train adapters only; ``None`` trains all weights.
        dtype: "float32" or "bfloat16", of the weights.
        attn: Attention of transformers: "sdpa", "eager", "flash_attention_2".
        gradient_checkpointing: Recompute the blocks in the backward pass.
        max_context: Tokens of prompt and response together.
    """

    model_id: str | None = None
    revision: str | None = None
    tokenizer_id: str | None = None
    tiny: TinyConfig | None = None
    lora: LoraArgs | None = None
    dtype: str = "float32"
    attn: str = "sdpa"
    gradient_checkpointing: bool = False
    max_context: int = 512

    @classmethod
    def of(cls, value: PolicyArgs | Mapping[str, Any] | None) -> PolicyArgs:
        """The arguments, from plain data as they stand in a YAML or ``config.json``.

        Raises:
            ZooError: For an unknown key, or sizes that do not fit each other.
        """
        args = value if isinstance(value, PolicyArgs) else _decode(cls, value or {}, "policy")
        tiny, lora = args.tiny, args.lora
        if isinstance(tiny, Mapping):
            tiny = _decode(TinyConfig, tiny, "policy.tiny")
        if isinstance(lora, Mapping):
            lora = _decode(LoraArgs, lora, "policy.lora")
        if (args.model_id is None) == (tiny is None):
            raise ZooError("policy needs exactly one of model_id and tiny.")
        if tiny is not None and (tiny.hidden % (2 * tiny.heads) or tiny.layers < 1):
            raise ZooError(
                f"policy.tiny: hidden={tiny.hidden} must be a multiple of twice "
                f"heads={tiny.heads}, and layers={tiny.layers} at least 1."
            )
        if tiny is not None and lora is not None:
            raise ZooError("policy.lora needs a model_id: the tiny model trains as a whole.")
        check_choice("policy.dtype", args.dtype, DTYPES)
        given = {f.name: getattr(args, f.name) for f in fields(cls)}
        return cls(**{**given, "tiny": tiny, "lora": lora})


T = TypeVar("T")


def _decode(cls: type[T], value: Mapping[str, Any], where: str) -> T:
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    for name in value:
        if name not in known:
            raise ZooError(f"{where} has no key '{name}'.{did_you_mean(name, known)}")
    return cls(**value)


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise missing_extra("transformers", "agents") from error
    return transformers


def tiny_model(args: PolicyArgs, tokenizer: Any) -> Any:
    """A Llama from nothing, for a word-level tokenizer."""
    tiny, transformers = args.tiny, _transformers()
    assert tiny is not None
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=tiny.hidden,
        intermediate_size=tiny.ffn,
        num_hidden_layers=tiny.layers,
        num_attention_heads=tiny.heads,
        num_key_value_heads=tiny.heads,
        max_position_embeddings=tiny.context,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        attn_implementation=args.attn,
    )
    return transformers.LlamaForCausalLM(config).to(DTYPES[args.dtype])


def fetched_model(args: PolicyArgs, weights: bool) -> Any:
    """A model of a folder or a hub repository; only its architecture unless ``weights``.

    Raises:
        ZooError: If it can't be read.
    """
    transformers = _transformers()
    source = {"revision": args.revision, "trust_remote_code": False}
    options = {"dtype": DTYPES[args.dtype], "attn_implementation": args.attn}
    try:
        if weights:
            return transformers.AutoModelForCausalLM.from_pretrained(
                args.model_id, use_safetensors=True, **source, **options
            )
        config = transformers.AutoConfig.from_pretrained(args.model_id, **source)
        return transformers.AutoModelForCausalLM.from_config(config, **options)
    except (OSError, ValueError) as error:
        raise ZooError(
            f"policy.model_id={args.model_id!r} (revision {args.revision}) can't be read: "
            f"{str(error).splitlines()[0]}"
        ) from error


def adapted_model(model: Any, lora: LoraArgs) -> Any:
    """The model with low-rank adapters, all else frozen."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise missing_extra("peft", "agents") from error
    config = LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=0.0,  # else a rollout's log-probabilities would not be the policy's
        target_modules=lora.targets,
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():
        # peft 0.21 asks for a property that transformers 5 renames (peft_model.py, __init__).
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        return get_peft_model(model, config)
