"""Tool 3 at real scale: a vision-language model looks at each beat and answers in the grammar."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from zoo.atomic import write_text
from zoo.deep_arrhythmia.report import PHRASES, SLOTS, from_text
from zoo.errors import ZooError, missing_extra

BEAT_S = 3.2  # of the picture around a beat, of the ten seconds of a segment
MAX_NEW_TOKENS = 64
SCALE = 4  # the crop is enlarged by it: such models see patches of 14 pixels

PROMPT = (
    "The picture is a piece of an electrocardiogram with one heart beat in its middle. "
    "Describe that beat by choosing one phrase of each line, joined by commas, and nothing else.\n"
    + "\n".join(" / ".join(phrases) for phrases in PHRASES)
)

Ask = Callable[[Image.Image, str], str]


class VlmReport:
    """Asks a vision-language model of transformers, and keeps its answers on disk.

    Args:
        name: On the hub.
        cache_dir: For the answers, by picture.
        ask: In place of the model: takes a picture and a prompt and returns an answer.

    Attributes:
        calls: Segments reported so far.
    """

    def __init__(
        self,
        name: str,
        cache_dir: str | Path = "~/.cache/lightning-zoo/ecg",
        ask: Ask | None = None,
    ) -> None:
        self.name, self.cache_dir = name, Path(cache_dir).expanduser()
        self.calls = 0
        self._ask = ask

    def __call__(
        self,
        images: Tensor,
        peaks: NDArray[np.int64],
        mask: NDArray[np.bool_],
        size: int,
    ) -> NDArray[np.int64]:
        """Reports all beats of some segments.

        Args:
            images: In 0..1. Shape: (B, 3, H, W).
            peaks: In samples. Shape: (B, n).
            mask: Which of them are there. Shape: (B, n).
            size: Of a segment, samples.

        Returns:
            Indices into ``PHRASES``, unknown in padding. Shape: (B, n, 6).
        """
        self.calls += len(images)
        codes = np.empty((*mask.shape, len(SLOTS)), np.int64)
        codes[:] = [len(slot.phrases) for slot in SLOTS]
        pixels = (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
        half = max(round(BEAT_S / 20 * pixels.shape[2]), 1)
        for row, place in np.argwhere(mask):  # one question a beat: the model is what costs
            middle = int(peaks[row, place] * pixels.shape[2] // size)
            crop = pixels[row, :, max(middle - half, 0) : middle + half]
            codes[row, place] = from_text(self._answer(np.ascontiguousarray(crop)))
        return codes

    def _answer(self, crop: NDArray[np.uint8]) -> str:
        key = hashlib.sha256(crop.tobytes() + f"{crop.shape} {self.name} {PROMPT}".encode())
        file = self.cache_dir / f"{key.hexdigest()}.txt"
        if file.is_file():
            return file.read_text(encoding="utf-8")
        if self._ask is None:
            self._ask = _load(self.name)
        picture = Image.fromarray(crop)
        answer = self._ask(picture.resize((SCALE * picture.width, SCALE * picture.height)), PROMPT)
        write_text(file, answer)
        return answer


def _load(name: str) -> Ask:
    """The model as a function of a picture and a prompt."""
    try:
        from transformers import AutoModelForImageTextToText, AutoProcessor
    except ImportError as error:
        raise missing_extra("transformers", "ecg") from error
    try:
        processor: Any = AutoProcessor.from_pretrained(name)
        model: Any = AutoModelForImageTextToText.from_pretrained(name, dtype="auto").eval()
    except (OSError, ValueError) as error:
        raise ZooError(f"report='vlm': {name} cannot be fetched: {error}") from error

    def ask(picture: Image.Image, prompt: str) -> str:
        content = [{"type": "image", "image": picture}, {"type": "text", "text": prompt}]
        inputs = processor.apply_chat_template(
            [{"role": "user", "content": content}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        ).to(model.device)
        with torch.inference_mode():
            tokens = model.generate(**inputs, max_new_tokens=MAX_NEW_TOKENS, do_sample=False)
        new = tokens[:, inputs["input_ids"].shape[1] :]
        return str(processor.batch_decode(new, skip_special_tokens=True)[0])

    return ask
