"""What growth costs: convex penalties of the growth rate, and why concave ones are refused."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from typing_extensions import Self

from zoo.errors import ZooError, did_you_mean

PENALTIES = ("quadratic", "power", "asymmetric", "entropic")
CHECKED = 8.0  # rates up to this, per interval between snapshots, are checked
STEPS = 1600
TOLERANCE = 1e-9  # of second differences, relative to the largest value


class GrowthPenalty:
    """psi(g), the cost of growing at the rate g, in the action of unbalanced transport.

    The action is the integral of (|v|^2 / 2 + psi(g)) rho over a time that runs from 0 to 1 between
    two snapshots, so g is the logarithm of the factor by which mass grows in one interval. psi has
    the unit of a squared distance. Called with a tensor it acts on each element, differentiably.

    Args:
        psi: Elementwise, with psi(0) = 0 as its minimum.
        name: For messages.
    """

    def __init__(self, psi: Callable[[Tensor], Tensor], name: str = "callable") -> None:
        self.psi, self.name = psi, name

    def __call__(self, g: Tensor) -> Tensor:
        """The penalty of each rate. Shape: any."""
        return self.psi(g)

    @classmethod
    def quadratic(cls, delta: float) -> Self:
        """delta^2 g^2 / 2: the Wasserstein-Fisher-Rao distance.

        Args:
            delta: Length scale, in the data's unit, beyond which growing is cheaper than moving.
        """
        return cls(lambda g: 0.5 * delta**2 * g.square(), "quadratic")

    @classmethod
    def power(cls, delta: float, p: float) -> Self:
        """delta^2 |g|^p / p.

        Args:
            delta: Length scale.
            p: Above 1; bursts of growth are cheaper the nearer it is to 1.

        Raises:
            ZooError: If p is not above 1.
        """
        if p <= 1:
            raise ZooError(f"power={p} must be above 1: |g|^p is not strictly convex otherwise.")
        # |g|^p has no derivative at 0 that autograd knows for p < 2: (g^2)^(p/2) with a floor has.
        return cls(lambda g: delta**2 * (g.square() + 1e-12) ** (p / 2) / p, f"power {p:g}")

    @classmethod
    def asymmetric(cls, delta: float, birth: float = 1.0, death: float = 10.0) -> Self:
        """delta^2 / 2 (birth g_+^2 + death g_-^2): death may be dearer than birth, or cheaper.

        Args:
            delta: Length scale.
            birth: Weight of growing, above 0.
            death: Weight of dying, above 0.

        Raises:
            ZooError: If a weight is not positive.
        """
        if min(birth, death) <= 0:
            raise ZooError(f"birth={birth} and death={death} must be above 0.")

        def psi(g: Tensor) -> Tensor:
            return 0.5 * delta**2 * torch.where(g > 0, birth, death) * g.square()

        return cls(psi, "asymmetric")

    @classmethod
    def entropic(cls, delta: float, rate: float = 1.0) -> Self:
        """delta^2 ((g + rate) log((g + rate) / rate) - g): the prior of a branching process.

        Below -rate / 2 it goes on as its second-order Taylor polynomial, so it is finite for all
        rates and twice continuously differentiable.

        Args:
            delta: Length scale.
            rate: Of the branching, per interval, above 0.

        Raises:
            ZooError: If the rate is not positive.
        """
        if rate <= 0:
            raise ZooError(f"rate={rate} must be above 0.")
        joint = -rate / 2
        value, slope = -rate / 2 * math.log(2) + rate / 2, -math.log(2)  # of psi / delta^2 there

        def psi(g: Tensor) -> Tensor:
            low = g - joint
            taylor = value + slope * low + low.square() / rate  # psi'' = 1 / (g + rate) = 2 / rate
            safe = g.clamp_min(joint)
            exact = (safe + rate) * torch.log1p(safe / rate) - safe
            return delta**2 * torch.where(g > joint, exact, taylor)

        return cls(psi, "entropic")

    @classmethod
    def named(
        cls,
        name: str,
        delta: float,
        power: float = 2.0,
        birth: float = 1.0,
        death: float = 10.0,
        rate: float = 1.0,
    ) -> Self:
        """The penalty that a config names; it has been checked.

        Raises:
            ZooError: If there is none of that name, or a number is out of range.
        """
        if delta <= 0:
            raise ZooError(f"delta={delta} is a length and must be above 0.")
        if name == "quadratic":
            return cls.quadratic(delta)
        if name == "power":
            return cls.power(delta, power)
        if name == "asymmetric":
            return cls.asymmetric(delta, birth, death)
        if name == "entropic":
            return cls.entropic(delta, rate)
        raise ZooError(
            f"penalty={name!r} is none of {', '.join(PENALTIES)}.{did_you_mean(name, PENALTIES)}"
        )

    def check_convex(self) -> Self:
        """Samples second differences on -8..8, and warns of a penalty that is not superlinear.

        Returns:
            The penalty itself.

        Raises:
            ZooError: If it is not convex somewhere, or 0 is not its minimum with the value 0; it
                names the interval.
        """
        g = torch.linspace(-CHECKED, CHECKED, STEPS + 1, dtype=torch.float64)
        values = self(g)
        if not values.isfinite().all():
            raise ZooError(f"The growth penalty '{self.name}' is not finite on -8..8.")
        slack = TOLERANCE * float(values.abs().max())
        bent = values[2:] - 2 * values[1:-1] + values[:-2] < -slack
        if bent.any():
            where = g[1:-1][bent]
            raise ZooError(
                f"The growth penalty '{self.name}' is not convex between {float(where[0]):.2f} and "
                f"{float(where[-1]):.2f}. With a concave penalty mass dies in a burst, moves while "
                "it weighs nothing and is born again: growth and transport separate, and the "
                "least action is 0 whatever the data."
            )
        middle = STEPS // 2
        if abs(float(values[middle])) > max(slack, 1e-5) or values.min() < values[middle] - slack:
            raise ZooError(
                f"The growth penalty '{self.name}' must be 0 at the rate 0 and nowhere less; "
                f"psi(0) is {float(values[middle]):.3g} and its minimum {float(values.min()):.3g}."
            )
        one = STEPS // 2 + round(STEPS / (2 * CHECKED))
        if float(values[-1]) / CHECKED <= 2 * float(values[one]):
            rank_zero_warn(
                f"The growth penalty '{self.name}' is hardly superlinear (psi(8) / 8 = "
                f"{float(values[-1]) / CHECKED:.3g}, psi(1) = {float(values[one]):.3g}): growth "
                "in bursts is cheap, and paths may be degenerate."
            )
        return self
