"""How a training went: success, coverage of the bank, probes of the gate, scatter of gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from zoo.agents.losses import aggregate
from zoo.agents.policy import CausalPolicy
from zoo.skill_sd.loss import distillation

if TYPE_CHECKING:
    from zoo.skill_sd.module import Distilled

PARTS = 8  # of a step's rollouts, each with a gradient of its own
COMPARED = ("iw_k3", "centred")
WINDOW = 5  # steps over whose mean the success is said to have reached a level
LEVEL = 0.5


@dataclass
class Progress:
    """What a training has seen, step of rollouts by step.

    Attributes:
        success: Share of each step's rollouts that succeeded.
        steps: Actions in the environment, all steps so far together.
        coverage: Of the bank.
        validations: Actions so far, and validation success.
        probes: Steps of rollouts so far, success of teacher and candidate with skills, and whether
            the candidate passed.
        gradients: Steps of rollouts so far, and the trace of the gradient's covariance by form.
    """

    success: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    coverage: list[float] = field(default_factory=list)
    validations: list[list[float]] = field(default_factory=list)
    probes: list[list[float]] = field(default_factory=list)
    gradients: list[list[float]] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """Steps of rollouts so far."""
        return len(self.success)

    @property
    def env_steps(self) -> int:
        """Actions in the environment so far."""
        return self.steps[-1] if self.steps else 0

    def add(self, success: float, actions: int, coverage: float) -> None:
        """Adds a step of rollouts."""
        self.steps.append(self.env_steps + actions)
        self.success.append(success)
        self.coverage.append(coverage)

    def steps_to(self, level: float = LEVEL) -> int | None:
        """Actions until the mean success of the last five steps reached a level, if it did."""
        for end in range(WINDOW, self.rounds + 1):
            if sum(self.success[end - WINDOW : end]) / WINDOW >= level:
                return self.steps[end - 1]
        return None

    def report(self) -> dict[str, float]:
        """Figures for the test's metrics; those that there are."""
        found: dict[str, float] = {}
        if self.coverage:
            found["coverage"] = self.coverage[-1]
        before = [rate for actions, rate in self.validations if actions == 0]
        if before:
            found["start"] = before[-1]
        if (steps := self.steps_to()) is not None:
            found["env_steps_to_half"] = float(steps)
        if self.probes:
            found["synced"] = sum(row[3] for row in self.probes) / len(self.probes)
        for number, form in enumerate(COMPARED, 1):
            if self.gradients:
                values = [row[number] for row in self.gradients]
                found[f"gradient_{form}"] = sum(values) / len(values)
        return found

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return dict(vars(self))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of :meth:`state_dict`."""
        for name, value in state.items():
            setattr(self, name, value)


def gradient_variance(
    policy: CausalPolicy, experience: Distilled, temperature: float
) -> list[float]:
    """Trace of the covariance of the distillation's gradient, for each of :data:`COMPARED`.

    The rollouts are split into eight parts by chance, at the weights that sampled them.
    """
    sequences = experience.sequences
    weights = [p for p in policy.parameters() if p.requires_grad]
    order = torch.randperm(len(sequences), generator=torch.Generator().manual_seed(0))
    found: dict[str, list[torch.Tensor]] = {form: [] for form in COMPARED}
    with torch.enable_grad():
        for rows in order.to(sequences.ids.device).tensor_split(min(PARTS, len(order))):
            ids, mask = sequences.ids[rows], sequences.mask[rows]
            actions, taught = sequences.actions[rows], experience.taught[rows]
            now = policy.token_logprobs(ids, mask, actions, temperature).values
            for form in COMPARED:
                values = distillation(
                    now, sequences.logprobs[rows], experience.teacher[rows], taught, form
                )
                loss = aggregate(values, actions)
                gradients = torch.autograd.grad(loss, weights, retain_graph=form != COMPARED[-1])
                found[form].append(torch.cat([g.flatten() for g in gradients]))
    return [float(torch.stack(found[form]).var(dim=0).sum()) for form in COMPARED]
