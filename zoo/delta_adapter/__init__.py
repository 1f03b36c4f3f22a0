"""Delta-Adapter: editing a photo by example, from one before/after pair."""

from zoo.delta_adapter.module import DeltaAdapter

__all__ = ["DeltaAdapter"]
