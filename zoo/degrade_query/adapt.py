"""A few labels of one target: what a project has when it begins."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.degrade_query.encoders import ProteinEncoder
from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.degrade_query.module import DegradeQuery


def adapted(
    model: DegradeQuery,
    support: Sequence[tuple[str, str, str, int]],
    steps: int,
    lr: float,
    anchor: float,
) -> DegradeQuery:
    """See :meth:`DegradeQuery.adapt`."""
    if not support:
        raise ZooError("adapt needs at least one (SMILES, target, E3 ligase, label).")
    for number, (_, _, _, label) in enumerate(support, start=1):
        if label not in (0, 1):
            raise ZooError(f"Support {number}: label {label!r} is neither 1 nor 0.")
    model = copy.deepcopy(model).eval()
    network = model.network
    with torch.no_grad():
        molecule = model._encode_smiles([smiles for smiles, *_ in support])
    found = [model._find(target, e3) for _, target, e3, _ in support]
    t, e = (torch.cat([rows[i] for rows, _ in found])[:, None] for i in (0, 1))
    t_feat, e_feat = (torch.cat([feats[i] for _, feats in found])[:, None] for i in (0, 1))
    truth = torch.tensor([float(one[3]) for one in support], device=model.device)
    trained: list[Tensor] = [*network.tuple.film.parameters(), *network.degradation.parameters()]
    if isinstance(network.protein, ProteinEncoder):
        _wake(model, network.protein, t[:, 0])
        trained.append(network.protein.identity.weight)
    network.requires_grad_(False)
    for parameter in trained:
        parameter.requires_grad_(True)
    start = [parameter.detach().clone() for parameter in trained]
    rows = torch.zeros(len(model.vocabulary.names), 1, device=model.device)
    rows[t[:, 0]] = 1
    rows[0] = 0  # the unknown protein stays what it is
    optimizer = torch.optim.AdamW(trained, lr=lr, weight_decay=0)
    for _ in range(steps):
        r, _ = model._fuse(molecule, t, e, t_feat, e_feat)
        logit = network.degradation(r)[:, 0, 0] / model.temperature
        moved = [(now - then).square().sum() for now, then in zip(trained, start, strict=True)]
        distance = torch.stack(moved).sum()
        loss = F.binary_cross_entropy_with_logits(logit, truth) + anchor * distance
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if isinstance(network.protein, ProteinEncoder):
            gradient = network.protein.identity.weight.grad
            assert gradient is not None
            gradient.mul_(rows)
        optimizer.step()
    network.requires_grad_(True)
    model.vocabulary.labels.index_add_(0, t[:, 0], torch.ones_like(t[:, 0]))
    return model


def _wake(model: DegradeQuery, protein: ProteinEncoder, rows: Tensor) -> None:
    """Gives targets that training has not seen an identity, which starts as the unknown one."""
    new = rows[~model.vocabulary.seen[rows]]
    with torch.no_grad():
        protein.identity.weight[new] = protein.identity.weight[0].clone()
    model.vocabulary.seen[new[new > 0]] = True
