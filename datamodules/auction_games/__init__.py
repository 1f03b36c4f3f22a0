"""Discretised auctions."""

from .datamodule import AuctionGamesDataModule as AuctionGamesDataModule
