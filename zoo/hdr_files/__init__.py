"""HDR images (OpenEXR, Radiance) and photographs from files or memory, checked at the door.

Radiance is float32 linear Rec.709, shape (H, W, 3), finite and not negative. A photograph is
float32 RGB in 0..1 as a display takes it, shape (H, W, 3). Data modules and methods read through
the same functions, so both refuse the same input in the same words.
"""

from zoo.hdr_files.exr import read_exr, write_exr
from zoo.hdr_files.photo import PHOTO_SUFFIXES, read_photo
from zoo.hdr_files.radiance import HDR_SUFFIXES, check_radiance, read_radiance, write_radiance
from zoo.hdr_files.rgbe import read_rgbe, write_rgbe

__all__ = [
    "HDR_SUFFIXES",
    "PHOTO_SUFFIXES",
    "check_radiance",
    "read_exr",
    "read_photo",
    "read_radiance",
    "read_rgbe",
    "write_exr",
    "write_radiance",
    "write_rgbe",
]
