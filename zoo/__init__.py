"""The zoo: methods of recent papers as Lightning modules.

The public names stand in ``__init__.pyi``, where editors and type checkers read them, and are
imported on first use: ``import zoo`` itself imports neither torch nor lightning.
"""

from pathlib import Path

import lazy_loader

from zoo._version import __version__ as __version__

# In a source tree, datamodules/, callbacks/, cli/ and model_cards/ stand beside this folder, and
# pytest or ``python -m zoo`` started there find this folder before the installed package.
_source = Path(__file__).parent.parent
if (_source / "pyproject.toml").is_file() and (_source / "model_cards").is_dir():
    __path__.append(str(_source))

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
