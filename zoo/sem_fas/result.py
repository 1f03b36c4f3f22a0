"""The decision on one capture, with its reasons in words and in a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from zoo.atomic import atomic_path, write_json
from zoo.face_files import MODALITIES
from zoo.sem_fas.head import PAIRS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLASSES = ("spoof", "live")
PAIR_NAMES = tuple(f"{MODALITIES[m]}-{MODALITIES[n]}" for m, n in PAIRS)
UNCERTAINTIES = ("u_amb", "u_mix", "u_cov")
SPOKEN = {"rgb": "RGB", "depth": "depth", "ir": "IR"}
DOUBTS = {
    "u_amb": "the evidence is ambiguous",
    "u_mix": "the heads disagree",
    "u_cov": "the capture lies outside of what the classes measure",
}
SLIGHT = 0.02  # an effect below it is not worth a sentence


@dataclass(frozen=True)
class FASResult:
    """What a model says about one capture.

    Attributes:
        name: Of the capture.
        decision: "live", "spoof", or "abstain" where an uncertainty is beyond its limit.
        p_live: Probability of a live face.
        threshold: Live is a p_live at or above it; from validation data with the same sensors.
        sensors: Modalities that were there.
        evidence: Of "spoof" and "live", each in 0..1.
        main: Evidence of each modality alone, by class.
        synergy: Evidence of each pair, by class: > 0 they reinforce, < 0 they suppress each other.
        phi_main: What each modality adds to p_live - p_spoof.
        phi_pair: What each pair adds to it.
        uncertainty: ``u_amb``, ``u_mix`` and ``u_cov``, each in 0..1.
        limits: The uncertainties beyond which a decision is withheld.
    """

    name: str
    decision: str
    p_live: float
    threshold: float
    sensors: tuple[str, ...]
    evidence: dict[str, float] = field(default_factory=dict)
    main: dict[str, dict[str, float]] = field(default_factory=dict)
    synergy: dict[str, dict[str, float]] = field(default_factory=dict)
    phi_main: dict[str, float] = field(default_factory=dict)
    phi_pair: dict[str, float] = field(default_factory=dict)
    uncertainty: dict[str, float] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)

    @property
    def u_amb(self) -> float:
        """Ambiguity: entropy of the decision in bits."""
        return self.uncertainty["u_amb"]

    @property
    def u_mix(self) -> float:
        """Mixedness: disagreement of the heads."""
        return self.uncertainty["u_mix"]

    @property
    def u_cov(self) -> float:
        """Missing coverage: how far outside of what the classes measure."""
        return self.uncertainty["u_cov"]

    def explain(self) -> str:
        """The decision and its reasons in a few sentences."""
        side = "live" if self.p_live >= self.threshold else "spoof"
        verdict = f"Decision: {self.decision}"
        if self.decision == "abstain":
            verdict += f" (it would be {side})"
        text = [f"{verdict}: p_live {self.p_live:.2f}, threshold {self.threshold:.2f}."]
        missing = [SPOKEN[m] for m in MODALITIES if m not in self.sensors]
        if missing:
            text.append(f"No {' and no '.join(missing)}.")
        text += [*self._effects(side), *self._doubts()]
        return " ".join(text)

    def _effects(self, side: str) -> list[str]:
        """The sensor that moved p_live most, and the pair that changed the evidence most."""
        if not self.phi_main:
            return []
        driver = max(self.phi_main, key=lambda m: abs(self.phi_main[m]))
        spoken = _capital(SPOKEN[driver])
        verb = "drove" if (self.phi_main[driver] > 0) == (side == "live") else "spoke against"
        text = [f"{spoken} {verb} the decision ({self.phi_main[driver]:+.2f})."]
        coverage = max(sum(self.evidence.values()), 1e-8)
        shares = {pair: self.synergy[pair][side] / coverage for pair in self.synergy}
        if not shares:
            return text
        pair = max(shares, key=lambda p: abs(shares[p]))
        if abs(shares[pair]) >= SLIGHT:
            first, second = (SPOKEN[m] for m in pair.split("-"))
            does = "reinforce" if shares[pair] > 0 else "suppress"
            text.append(
                f"{_capital(first)} and {second} {does} each other's evidence of {side} "
                f"({shares[pair]:+.2f})."
            )
        return text

    def _doubts(self) -> list[str]:
        return [
            f"{_capital(DOUBTS[name])} ({name} {value:.2f}, limit {self.limits[name]:.2f})."
            for name, value in self.uncertainty.items()
            if value > self.limits[name]
        ]

    def figure(self) -> Figure:
        """A bar for each modality and pair: what it added to p_live - p_spoof."""
        from zoo.sem_fas.figure import effects

        return effects(self)

    def save(self, path: Path) -> list[Path]:
        """Writes ``<path>.json`` with everything and ``<path>.png`` with the effects."""
        written = [path.with_name(f"{path.name}{suffix}") for suffix in (".json", ".png")]
        write_json(written[0], {**asdict(self), "explanation": self.explain()})
        with atomic_path(written[1]) as temporary:
            self.figure().savefig(temporary, dpi=100, format="png")
        return written


def results(
    names: list[str],
    outputs: Mapping[str, Tensor],
    mask: Tensor,
    thresholds: Tensor,
    limits: Tensor,
    abstain: bool = True,
) -> list[FASResult]:
    """Names what a batch's outputs hold by position.

    Args:
        names: Of the samples.
        outputs: Of ``forward``.
        mask: Which sensors were there. Shape: (B, 3).
        thresholds: Of each sample. Shape: (B,).
        limits: Of each sample's uncertainties. Shape: (B, U).
        abstain: Whether to withhold decisions whose uncertainty is beyond its limit.
    """
    rows: dict[str, Any] = {k: v.detach().float().cpu().tolist() for k, v in outputs.items()}
    uncertain = [name for name in UNCERTAINTIES if name in rows]
    found = []
    for i, name in enumerate(names):
        doubts = {u: rows[u][i] for u in uncertain}
        bounds = dict(zip(uncertain, limits[i].tolist(), strict=True))
        threshold, p_live = float(thresholds[i]), rows["p_live"][i]
        decision = CLASSES[int(p_live >= threshold)]
        if abstain and any(doubts[u] > bounds[u] for u in uncertain):
            decision = "abstain"
        there = mask[i].tolist()
        sensors = tuple(m for m, present in zip(MODALITIES, there, strict=True) if present)
        pairs = [p for p in PAIR_NAMES if set(p.split("-")) <= set(sensors)]
        parts: dict[str, Any] = {}
        if "phi_main" in rows:
            parts = {
                "evidence": dict(zip(CLASSES, rows["evidence"][i], strict=True)),
                "main": _by_class(rows["main"][i], MODALITIES, sensors),
                "synergy": _by_class(rows["synergy"][i], PAIR_NAMES, pairs),
                "phi_main": _pick(rows["phi_main"][i], MODALITIES, sensors),
                "phi_pair": _pick(rows["phi_pair"][i], PAIR_NAMES, pairs),
            }
        found.append(
            FASResult(
                name=name,
                decision=decision,
                p_live=p_live,
                threshold=threshold,
                sensors=sensors,
                uncertainty=doubts,
                limits=bounds,
                **parts,
            )
        )
    return found


def _pick(values: list[float], names: tuple[str, ...], wanted: Any) -> dict[str, float]:
    return {name: value for name, value in zip(names, values, strict=True) if name in wanted}


def _by_class(
    values: list[list[float]], names: tuple[str, ...], wanted: Any
) -> dict[str, dict[str, float]]:
    return {
        name: {label: values[y][i] for y, label in enumerate(CLASSES)}
        for i, name in enumerate(names)
        if name in wanted
    }


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
