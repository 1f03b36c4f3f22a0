"""Procedural faces: no person's data. The renderer, what sensors see of it, and attacks on them."""

from .captures import Captures as Captures
from .captures import capture as capture
from .domains import DOMAINS as DOMAINS
from .renderer import Faces as Faces
from .renderer import background as background
from .renderer import compose as compose
from .renderer import draw_faces as draw_faces
from .renderer import shade as shade
