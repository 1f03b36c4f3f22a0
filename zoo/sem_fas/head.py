"""Evidence as a quantum-like measurement: states, coherent heads, density matrix, class effects.

Everything here is what the abstract names, in the form that we chose where it names no more.
Indices are m, n for the modalities (rgb, depth, ir), k for the K heads, y for the classes (0 spoof,
1 live), d for the dimension of a state.

A complex number is a pair of reals in a dimension of its own, never a complex tensor: the products
that are needed are then plain matrix products, which are faster on a CPU, exist in every runtime
that a graph may be exported to, and keep optimiser, gradient clipping and safetensors simple.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.face_files import MODALITIES

M = len(MODALITIES)
PAIRS = ((0, 1), (0, 2), (1, 2))  # rgb-depth, rgb-ir, depth-ir
REST_SHARE, RIDGE = 0.05, 1e-4  # of the rest effect, and what keeps its Cholesky factor regular
MIN_NORM = 1e-4  # of Z, where the sensors' states cancel each other
EPS = 1e-8


@dataclass(frozen=True)
class States:
    """What the sensors say, before it is measured.

    Attributes:
        psi: Unit states psi_mk as (re, im). Shape: (B, M, K, 2, d).
        c: How strongly head k hears sensor m; squares sum to 1 over m, exactly 0 for a sensor that
            is not there. Shape: (B, M, K).
        pi: Weight of each head, sums to 1. Shape: (B, K).
    """

    psi: Tensor
    c: Tensor
    pi: Tensor


@dataclass(frozen=True)
class FASOutput:
    """One measurement of a batch.

    Attributes:
        p_live: Probability of a live face. Shape: (B,).
        evidence: q_y = tr(rho E_y) of spoof and live, each in 0..1. Shape: (B, 2).
        main: Share of each sensor alone in it, >= 0, 0 for one that is not there. Shape: (B, 2, 3).
        synergy: Share of each pair in it, > 0 where the two reinforce each other and < 0 where
            they suppress each other; pairs rgb-depth, rgb-ir, depth-ir. Shape: (B, 2, 3).
        phi_main: (main_live - main_spoof) / (q_0 + q_1). Shape: (B, 3).
        phi_pair: The same of the pairs. All six sum to p_live - p_spoof. Shape: (B, 3).
        u_amb: Entropy of the decision in bits: the evidence is ambiguous. Shape: (B,).
        u_mix: 1 - tr rho^2, scaled to 0..1: the heads disagree. Shape: (B,).
        u_cov: tr(rho E_rest): the state lies outside of what the classes measure. Shape: (B,).
        overlaps: Squared overlaps of the heads. Shape: (B, K, K).
        psi: States Psi_k times sqrt(pi_k), so that rho is the sum of their projectors, as
            (re, im). Shape: (B, K, 2, d).
        cancelled: Share of the heads whose states cancelled each other to nothing. Shape: ().
        states: What was measured.
    """

    p_live: Tensor
    evidence: Tensor
    main: Tensor
    synergy: Tensor
    phi_main: Tensor
    phi_pair: Tensor
    u_amb: Tensor
    u_mix: Tensor
    u_cov: Tensor
    overlaps: Tensor
    psi: Tensor
    cancelled: Tensor
    states: States

    @property
    def log_p(self) -> Tensor:
        """Natural logarithm of the probabilities of spoof and live. Shape: (B, 2)."""
        return _log_share(self.evidence)

    @property
    def rho(self) -> Tensor:
        """The density matrix: Hermitian, >= 0, trace 1, rank <= K. Shape: (B, d, d), complex64."""
        psi = torch.complex(self.psi[:, :, 0], self.psi[:, :, 1])
        return torch.einsum("bki,bkj->bij", psi, psi.conj())


class Measurement(nn.Module):
    """The constrained measurement: E_0 + E_1 + E_rest = 1, each >= 0, for any parameters.

    With free matrices A_y and R, S = sum_y A_y^H A_y + 0.05 R^H R + 1e-4 = L L^H, the effects are
    E_y = V_y V_y^H with V_y = L^-1 A_y^H. The Cholesky factor has a stable gradient where the
    inverse square root of S divides by gaps between eigenvalues.

    Args:
        dim: d.
        rank: r, of the class effects.
    """

    def __init__(self, dim: int, rank: int) -> None:
        super().__init__()
        # Complex matrices are stored as pairs: optimisers, clipping and safetensors want reals.
        self.classes = nn.Parameter(torch.randn(2, rank, dim, 2) / math.sqrt(2 * dim))
        self.rest = nn.Parameter(torch.randn(dim, dim, 2) / math.sqrt(2 * dim))
        self._kept: tuple[object, Tensor] | None = None

    def factors(self) -> tuple[Tensor, Tensor]:
        """V_y and the same of the rest. Shapes: (2, d, r) and (d, 2 d), complex64."""
        # In double precision: d is small, and the ridge alone leaves a condition of 1e4.
        a = torch.view_as_complex(self.classes.double())
        rest = torch.view_as_complex(self.rest.double())
        identity = torch.eye(rest.shape[0], dtype=rest.dtype, device=rest.device)
        rows = a.flatten(0, 1)  # (2 r, d)
        s = rows.mH @ rows + REST_SHARE * rest.mH @ rest + RIDGE * identity
        lower = torch.linalg.cholesky(s)
        columns = torch.cat([rows.mH, REST_SHARE**0.5 * rest.mH, RIDGE**0.5 * identity], dim=1)
        solved = torch.linalg.solve_triangular(lower, columns, upper=False).to(torch.complex64)
        count = len(rows)
        classes = solved[:, :count].unflatten(1, (2, -1)).movedim(1, 0)
        return classes, solved[:, count:]

    def effects(self) -> Tensor:
        """E_0, E_1 and E_rest. Shape: (3, d, d), complex64."""
        classes, rest = self.factors()
        return torch.cat([classes @ classes.mH, (rest @ rest.mH)[None]])

    def class_trace(self) -> Tensor:
        """tr(E_0 + E_1) / d, the share of the space that the classes measure. Shape: ()."""
        classes, _ = self.factors()
        return classes.abs().square().sum() / classes.shape[1]

    def projection(self) -> Tensor:
        """V_y^H as a real matrix on (re, im), kept between calls without gradients.

        Returns:
            Shape: (2 d, 2 * 2 * r): columns are class, then real and imaginary part.
        """
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self._projection()
        key = tuple((p.data_ptr(), p._version, p.device, p.dtype) for p in self.parameters())
        if self._kept is None or self._kept[0] != key:
            self._kept = (key, self._projection())
        return self._kept[1]

    def _projection(self) -> Tensor:
        classes, _ = self.factors()  # (2, d, r)
        real, imag = classes.real, classes.imag
        # V^H u = (Vr^T re + Vi^T im) + i (Vr^T im - Vi^T re)
        top = torch.cat([real, -imag], dim=2)
        bottom = torch.cat([imag, real], dim=2)
        return torch.cat([top, bottom], dim=1).movedim(0, 1).flatten(1)  # (2 d, 2, 2 r)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_kept": None}


class EvidenceHead(nn.Module):
    """From three feature vectors to evidence, its parts, and three uncertainties, in one pass.

    Args:
        features: C.
        dim: d, of the states.
        heads: K.
        rank: r, of the class effects.
        use_phase: Without it all states are real and positive, and sensors only reinforce.
    """

    def __init__(
        self, features: int, dim: int = 16, heads: int = 4, rank: int = 4, use_phase: bool = True
    ) -> None:
        super().__init__()
        self.dim, self.heads, self.use_phase = dim, heads, use_phase
        width = 2 if use_phase else 1
        self.columns = heads * (width * dim + 1)  # of each modality: amplitudes, phases, gates
        bound = features**-0.5
        self.weight = nn.Parameter(torch.empty(M, features, self.columns).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(M, 1, self.columns))
        self.mixture = nn.Linear(features, heads)
        self.measurement = Measurement(dim, rank)

    def forward(self, features: Tensor, mask: Tensor) -> FASOutput:
        """Measures.

        Args:
            features: h_m. Shape: (B, 3, C).
            mask: Which sensors are there, bool, at least one a sample. Shape: (B, 3).
        """
        with torch.autocast(features.device.type, enabled=False):
            return self.measure(self.states(features.float(), mask))

    def states(self, features: Tensor, mask: Tensor) -> States:
        """The states, gates and head weights of a batch; shapes as in :meth:`forward`."""
        kd = self.heads * self.dim
        out = torch.baddbmm(self.bias, features.transpose(0, 1), self.weight)  # (M, B, columns)
        strength = F.softplus(out[..., :kd])
        split = (*strength.shape[:-1], self.heads, self.dim)
        amplitude = F.normalize(strength.reshape(split), dim=-1)
        if self.use_phase:
            phase = math.pi * torch.tanh(out[..., kd : 2 * kd]).reshape(split)
            psi = torch.stack([amplitude * phase.cos(), amplitude * phase.sin()], dim=-2)
        else:
            psi = torch.stack([amplitude, torch.zeros_like(amplitude)], dim=-2)
        gate = out[..., -self.heads :].sigmoid().transpose(0, 1)  # (B, M, K)
        heard = gate * mask[..., None]
        c = heard / heard.square().sum(dim=1, keepdim=True).clamp_min(EPS).sqrt()
        there = mask[..., None].to(features.dtype)
        mean = (features * there).sum(dim=1) / there.sum(dim=1).clamp_min(1)
        return States(psi.transpose(0, 1), c, self.mixture(mean).softmax(dim=-1))

    def alone(self, states: States, features: Tensor) -> Tensor:
        """Evidence of each sensor as if no other were there: what a one-hot mask gives.

        Args:
            states: Of the batch.
            features: That they came from. Shape: (B, 3, C).

        Returns:
            Shape: (B, 3, 2).
        """
        with torch.autocast(features.device.type, enabled=False):
            pi = self.mixture(features.float()).softmax(dim=-1)  # (B, M, K)
            seen = states.psi.flatten(-2) @ self.measurement.projection()  # (B, M, K, 4 r)
            square = seen.reshape(*seen.shape[:-1], 2, -1).square().sum(dim=-1)  # (B, M, K, 2)
            evidence: Tensor = (pi[..., None] * square).sum(dim=2)
            return evidence

    def measure(self, states: States) -> FASOutput:
        """The Born rule, with its parts: linear in B K M (d r + M r), never d x d."""
        part = states.c[..., None, None] * states.psi  # (B, M, K, 2, d)
        total = part.sum(dim=1)  # (B, K, 2, d)
        norm = total.square().sum(dim=(-2, -1))  # Z_k: holds the overlaps between sensors
        # Where the states cancel, the clamp leaves tr rho < 1: what is lost counts as not covered.
        z = norm.clamp_min(MIN_NORM)
        root = states.pi.clamp_min(EPS).sqrt()
        scale = root * z.rsqrt()  # (B, K)
        seen = part.flatten(-2) @ self.measurement.projection()  # (B, M, K, 4 r)
        seen = scale[:, None, :, None] * seen
        seen = seen.reshape(*seen.shape[:-1], 2, -1)  # (B, M, K, 2, 2 r)
        rows = seen.permute(0, 3, 1, 2, 4).flatten(-2)  # (B, 2, M, K 2 r)
        gram = rows @ rows.mT  # Re <u_m| E_y |u_n>, summed over the heads; (B, 2, M, M)
        main = gram.diagonal(dim1=-2, dim2=-1)
        synergy = torch.stack([2 * gram[..., m, n] for m, n in PAIRS], dim=-1)
        evidence = main.sum(dim=-1) + synergy.sum(dim=-1)  # (B, 2)
        evidence = evidence.clamp_min(0)
        kappa = evidence.sum(dim=-1).clamp_min(EPS)
        log_p = _log_share(evidence)
        unit = z.rsqrt()[..., None, None] * total
        overlaps = _overlaps(unit)
        return FASOutput(
            p_live=evidence[:, 1] / kappa,
            evidence=evidence,
            main=main,
            synergy=synergy,
            phi_main=(main[:, 1] - main[:, 0]) / kappa[:, None],
            phi_pair=(synergy[:, 1] - synergy[:, 0]) / kappa[:, None],
            u_amb=(-(log_p.exp() * log_p).sum(dim=-1) / math.log(2)).clamp(0, 1),
            u_mix=self._mixedness(overlaps, states.pi),
            u_cov=(1 - kappa).clamp(0, 1),
            overlaps=overlaps,
            psi=root[..., None, None] * unit,
            cancelled=(norm < MIN_NORM).float().mean(),
            states=states,
        )

    def _mixedness(self, overlaps: Tensor, pi: Tensor) -> Tensor:
        if self.heads == 1:
            return torch.zeros_like(pi[:, 0])
        purity = (pi[:, None] @ overlaps @ pi[..., None])[:, 0, 0]  # tr rho^2
        return (self.heads / (self.heads - 1) * (1 - purity)).clamp(0, 1)


def _overlaps(psi: Tensor) -> Tensor:
    """|<psi_k|psi_j>|^2 of states as (re, im). Shape: (B, K, 2, d) gives (B, K, K)."""
    re, im = psi[:, :, 0], psi[:, :, 1]
    real = re @ re.mT + im @ im.mT
    cross = re @ im.mT
    return real.square() + (cross - cross.mT).square()


def _log_share(evidence: Tensor) -> Tensor:
    log_q = evidence.clamp_min(EPS).log()
    return log_q - torch.logsumexp(log_q, dim=-1, keepdim=True)
