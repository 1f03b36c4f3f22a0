"""Text to tokens and back: whose turn it is, and where a turn ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from zoo.agents.tokenizer import REPLY, split_words, word_tokenizer
from zoo.errors import ZooError, did_you_mean, missing_extra

CUT = "<cut here>"  # stands for an answer in a chat template
REMEMBERED = 16384  # texts of a word-level codec whose tokens are kept


class Codec:
    """A tokenizer with the form of a conversation.

    A word-level one opens with its first token, and marks where an answer begins; others follow
    their chat template, or take plain text if they have none.

    Args:
        tokenizer: Of transformers.
        word_level: Whether it is :func:`~zoo.agents.tokenizer.word_tokenizer`'s.
    """

    def __init__(self, tokenizer: Any, word_level: bool = False) -> None:
        self.tokenizer, self.word_level = tokenizer, word_level
        self._known: dict[str, list[int]] = {}  # small worlds say the same things again and again
        self.stop_ids = [int(tokenizer.eos_token_id)]

    @classmethod
    def of_words(cls, words: Iterable[str], max_length: int = 512) -> Codec:
        """One token a word."""
        return cls(word_tokenizer(words, max_length), word_level=True)

    @classmethod
    def fetch(cls, source: str, revision: str | None = None) -> Codec:
        """Of a folder or a hub repository.

        Raises:
            ZooError: If it can't be read, or names no token that ends a text.
        """
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise missing_extra("transformers", "agents") from error
        try:
            tokenizer = AutoTokenizer.from_pretrained(
                source, revision=revision, trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ZooError(f"The tokenizer of {source!r} can't be read: {reason}") from error
        if tokenizer.eos_token_id is None:
            raise ZooError(f"The tokenizer of {source!r} has no token that ends a text.")
        return cls(tokenizer)

    def stop_at(self, generation_config: Any) -> None:
        """Takes the tokens that end a response from a model's generation config, if it has any."""
        ids = getattr(generation_config, "eos_token_id", None)
        if ids is not None:
            self.stop_ids = [int(i) for i in (ids if isinstance(ids, list) else [ids])]

    @property
    def pad_id(self) -> int:
        """What fills up short rows; it is always masked."""
        ids = self.tokenizer
        return int(ids.pad_token_id if ids.pad_token_id is not None else ids.eos_token_id)

    def encode_prompt(self, text: str, first: bool = True) -> list[int]:
        """What someone says to the model, up to where its answer begins.

        Args:
            text: The user's turn.
            first: Whether it begins the conversation.

        Raises:
            ZooError: If the tiny model's vocabulary lacks a word; it names it.
        """
        if self.word_level:
            ids = self._words(text)
            begin = [self.tokenizer.bos_token_id] if first else []
            return [*begin, *ids, self.tokenizer.convert_tokens_to_ids(REPLY)]
        if self.tokenizer.chat_template is None:
            return list(self.tokenizer(text, add_special_tokens=first)["input_ids"])
        turns = [{"role": "user", "content": text}]
        if not first:  # what a template puts after an answer and before the next one
            turns = [{"role": "user", "content": ""}, {"role": "assistant", "content": CUT}, *turns]
        rendered = self.tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, tokenize=False
        )
        if not first:  # the model has ended its answer itself
            end = self.tokenizer.convert_ids_to_tokens(self.stop_ids[0])
            rendered = rendered.partition(CUT)[2].removeprefix(end)
        return list(self.tokenizer(rendered, add_special_tokens=False)["input_ids"])

    def encode_reply(self, text: str) -> list[int]:
        """What the model is to answer, with the token that ends it."""
        if self.word_level:
            return [*self._words(text), self.tokenizer.eos_token_id]
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return [*ids, self.stop_ids[0]]

    def decode(self, rows: Sequence[Sequence[int]] | Tensor) -> list[str]:
        """Texts of token rows, without special tokens."""
        rows = rows.tolist() if isinstance(rows, Tensor) else rows
        texts = self.tokenizer.batch_decode(rows, skip_special_tokens=True)
        return [text.strip() for text in texts]

    def _words(self, text: str) -> list[int]:
        if text in self._known:
            return self._known[text]
        ids = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        if self.tokenizer.unk_token_id in ids:
            known = self.tokenizer.get_vocab()
            word = next((w for w in split_words(text) if w not in known), text)
            raise ZooError(
                f"The word '{word}' of '{text[:80]}' is not in the policy's vocabulary."
                f"{did_you_mean(word, known)}"
            )
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[text] = ids
        return ids
