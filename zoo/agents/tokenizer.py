"""A tokenizer for small worlds: one token a word, made from a list of words without training."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from zoo.errors import ZooError, missing_extra

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, UNKNOWN, BEGIN, END, REPLY = "<pad>", "<unk>", "<bos>", "<eos>", "<reply>"
SPECIAL = (PAD, UNKNOWN, BEGIN, END, REPLY)  # in the order of their ids, 0 to 4
MARKS = r"""[\[\](){}.,:;!?"|]"""  # tokens of their own wherever they stand
BEFORE = ".,:;!?)]}"  # marks that take no space before them
AFTER = "[({"  # and none after


def split_words(text: str) -> list[str]:
    """Words and marks, as the tokenizer separates them."""
    return re.findall(rf"{MARKS}|[^\s\[\](){{}}.,:;!?\"|]+", text)


def word_tokenizer(words: Iterable[str], max_length: int = 512) -> PreTrainedTokenizerFast:
    """A word-level tokenizer, equal for equal words in whatever order.

    Args:
        words: Words or whole texts; each word and each mark becomes a token.
        max_length: Of a sequence, which the tokenizer states but does not enforce.

    Raises:
        ZooError: If there are no words.
    """
    try:
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast
    except ImportError as error:
        raise missing_extra("transformers", "agents") from error

    found = sorted({piece for word in words for piece in split_words(word)} - set(SPECIAL))
    if not found:
        raise ZooError("The tiny policy has no vocabulary: give policy.tiny.vocabulary some words.")
    ids = {word: number for number, word in enumerate((*SPECIAL, *found))}
    backend = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Split(Regex(MARKS), behavior="isolated"),
        ]
    )
    tidy: list[Any] = [decoders.Replace(f" {mark}", mark) for mark in (*BEFORE, *AFTER[:1])]
    tidy += [decoders.Replace(f"{mark} ", mark) for mark in AFTER]
    spaced = decoders.WordPiece(prefix="##never##", cleanup=False)
    backend.decoder = decoders.Sequence([spaced, decoders.Fuse(), *tidy])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        unk_token=UNKNOWN,
        bos_token=BEGIN,
        eos_token=END,
        extra_special_tokens=[REPLY],
        model_max_length=max_length,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
