"""Sinkhorn memory: dense associative memory for weighted point clouds."""

from zoo.layers.sinkhorn import sinkhorn_divergence as sinkhorn_divergence
from zoo.sinkhorn_memory.baselines import euclidean_hopfield as euclidean_hopfield
from zoo.sinkhorn_memory.baselines import moments_hopfield as moments_hopfield
from zoo.sinkhorn_memory.flow import Dynamics as Dynamics
from zoo.sinkhorn_memory.flow import Patterns as Patterns
from zoo.sinkhorn_memory.flow import Retrieval as Retrieval
from zoo.sinkhorn_memory.flow import shk_retrieve as shk_retrieve
from zoo.sinkhorn_memory.module import Recall as Recall
from zoo.sinkhorn_memory.module import SinkhornMemory as SinkhornMemory
