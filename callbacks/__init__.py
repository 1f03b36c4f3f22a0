"""Lightning callbacks of the zoo, imported on first use (see ``__init__.pyi``)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
