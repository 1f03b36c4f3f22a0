"""Between text and token ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from zoo.errors import ZooError

ASCII = 128  # ids of a byte model


class TextCodec(Protocol):
    """Turns text into ids and back."""

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""


class ByteCodec:
    """One id a byte, ASCII only."""

    def encode(self, text: str) -> list[int]:
        """The bytes of a text.

        Raises:
            ZooError: If a character is not ASCII; it says which.
        """
        try:
            return list(text.encode("ascii"))
        except UnicodeEncodeError as error:
            character = text[error.start]
            raise ZooError(
                f"The text has {character!r} (U+{ord(character):04X}) at position {error.start}; a "
                "byte model knows ASCII only."
            ) from error

    def decode(self, ids: Sequence[int]) -> str:
        """The text of bytes."""
        return bytes(ids).decode("ascii", errors="replace")


class TokenizerCodec:
    """The tokenizer of a file or of the hub.

    Args:
        name: A ``tokenizers`` JSON file, or a repository that has one.
    """

    def __init__(self, name: str) -> None:
        from tokenizers import Tokenizer

        if name.endswith(".json") and not Path(name).is_file():
            raise ZooError(f"There is no tokenizer file {name}.")
        local = Path(name).is_file()
        self.tokenizer = Tokenizer.from_file(name) if local else Tokenizer.from_pretrained(name)

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return str(self.tokenizer.decode(list(ids)))
