"""Equilibrium learning in discretised auctions, and the sets that bound its outcomes."""

from zoo.auction_games import AuctionGame as AuctionGame
from zoo.auction_games import read_game as read_game
from zoo.bayes_auction.dynamics import learn as learn
from zoo.bayes_auction.module import BayesAuction as BayesAuction
from zoo.bayes_auction.network import BidNetwork as BidNetwork
from zoo.bayes_auction.polytope import Polytope as Polytope
from zoo.bayes_auction.polytope import PolytopeReport as PolytopeReport
from zoo.bayes_auction.polytope import measure as measure
from zoo.bayes_auction.result import EquilibriumReport as EquilibriumReport
