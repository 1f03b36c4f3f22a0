"""HDR bracket: one photograph to an exposure bracket, generated as a video, and to linear HDR."""

from zoo.hdr_bracket.bracket import debevec, expose, merge
from zoo.hdr_bracket.fusion import FusionUNet
from zoo.hdr_bracket.generator import BracketGenerator
from zoo.hdr_bracket.module import HDRBracket
from zoo.hdr_bracket.result import HDRResult

__all__ = [
    "BracketGenerator",
    "FusionUNet",
    "HDRBracket",
    "HDRResult",
    "debevec",
    "expose",
    "merge",
]
