"""Features of strings by frozen language models: ESM-2 of proteins, ChemBERTa of SMILES.

They are computed once for each string, and kept on disk as safetensors under the hash of model and
string, so no language model runs in training. Models whose code comes from the hub (MoLFormer) are
not run: the zoo executes no code of strangers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from zoo.atomic import atomic_path
from zoo.errors import ZooError, missing_extra

MAX_TOKENS = 1022  # what ESM-2 was trained with, without its two marks
BATCH = 8
RESIDUES = set("ACDEFGHIKLMNPQRSTVWYXBZUO")


@dataclass(frozen=True)
class LanguageModel:
    """A frozen encoder of strings.

    Attributes:
        name: Hub id or folder.
        width: Of its features.
        revision: Branch, tag or commit.
        sizes: Entries of the config of an encoder with random weights, which needs no download, to
            try a configuration out; ``None`` for the published weights.
    """

    name: str
    width: int
    revision: str | None = None
    sizes: dict[str, Any] | None = None


def embed(texts: Sequence[str], model: LanguageModel) -> Tensor:
    """Mean of the last hidden states over a string's tokens.

    Args:
        texts: SMILES, or amino acid sequences.
        model: Which encoder.

    Returns:
        float32. Shape: (N, width).

    Raises:
        ZooError: If transformers is not installed, the model cannot be loaded, or its features
            have another width.
    """
    settings = f"{model.name}@{model.revision} {model.sizes}"
    root = os.environ.get("ZOO_CACHE") or "~/.cache/lightning-zoo"
    key = hashlib.sha256("\n".join([settings, *texts]).encode()).hexdigest()[:24]
    path = Path(root).expanduser() / "language" / f"{key}.safetensors"
    if path.is_file():
        found = load_file(path)["features"]
    else:
        found = _compute(texts, model)
        with atomic_path(path) as temporary:
            save_file({"features": found}, temporary)
    if found.shape[1] != model.width:
        raise ZooError(
            f"The features of {model.name} are {found.shape[1]} numbers wide, not {model.width}: "
            "set width."
        )
    return found


def _compute(texts: Sequence[str], model: LanguageModel) -> Tensor:
    try:
        import transformers
    except ImportError as error:
        raise missing_extra("transformers", "chem") from error
    encoder: Any
    if model.sizes is not None:
        config = transformers.AutoConfig.for_model(**{"model_type": "roberta", **model.sizes})
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            encoder = transformers.AutoModel.from_config(config)
        vocabulary = int(config.vocab_size)

        def tokens(batch: Sequence[str]) -> dict[str, Tensor]:
            ids = [
                torch.tensor([3 + b % (vocabulary - 3) for b in t.encode()[:MAX_TOKENS]])
                for t in batch
            ]
            padded = torch.nn.utils.rnn.pad_sequence(
                ids, batch_first=True, padding_value=int(config.pad_token_id or 0)
            )
            lengths = torch.tensor([len(i) for i in ids])
            mask = torch.arange(padded.shape[1]) < lengths[:, None]
            return {"input_ids": padded, "attention_mask": mask.long()}

    else:
        options = {"revision": model.revision, "trust_remote_code": False}
        try:
            encoder = transformers.AutoModel.from_pretrained(model.name, **options)
            tokenizer = transformers.AutoTokenizer.from_pretrained(model.name, **options)
        except (OSError, ValueError) as error:  # unknown, unreachable, or with code of its own
            first = str(error).splitlines()[0]
            raise ZooError(f"The language model {model.name} cannot be loaded: {first}") from error

        def tokens(batch: Sequence[str]) -> dict[str, Tensor]:
            return dict(
                tokenizer(
                    list(batch),
                    padding=True,
                    truncation=True,
                    max_length=MAX_TOKENS,
                    return_tensors="pt",
                )
            )

    device = "cuda" if torch.cuda.is_available() else "cpu"
    encoder = encoder.to(device).eval()
    found = []
    with torch.inference_mode():
        for start in range(0, len(texts), BATCH):
            given = {k: v.to(device) for k, v in tokens(texts[start : start + BATCH]).items()}
            hidden = encoder(**given).last_hidden_state.float()
            weight = given["attention_mask"][..., None].float()
            found.append(((hidden * weight).sum(1) / weight.sum(1).clamp_min(1)).cpu())
    return torch.cat(found)


def read_fasta(path: str | Path) -> dict[str, str]:
    """Sequences by UniProt accession: of ``>sp|O60885|BRD4_HUMAN``, or ``>O60885``.

    Raises:
        ZooError: If the file is missing or no FASTA; it names the line.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise ZooError(f"{path} is no file: expected protein sequences as FASTA.")
    found: dict[str, str] = {}
    name = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.strip()
        if text.startswith(">"):
            words = text[1:].split()
            parts = words[0].split("|") if words else [""]
            name = parts[1] if len(parts) > 1 else parts[0]
            if not name:
                raise ZooError(f"{path}, line {number}: a header without a name.")
            found[name] = ""
        elif text:
            wrong = set(text.upper()) - RESIDUES
            if not name or wrong:
                what = f"{sorted(wrong)[0]!r} is no amino acid" if wrong else "no header before it"
                raise ZooError(f"{path}, line {number}: {what}.")
            found[name] += text.upper()
    if not found:
        raise ZooError(f"{path} holds no sequences.")
    return found
