"""What noise and clipping do to training: the paper's descent lemma and its corollary.

Users i with weights w_i = J_i/J send clipped gradients with noise, ḡ_i + n_i, where
E‖n_i‖² ≤ μ‖ḡ_i‖², and the server steps h ← h − η_h Σ w_i (ḡ_i + n_i), θ ← θ − η_θ ∇F(θ).
The bounds hold for any smooth loss F; in a radio map F is in dB², h in metres, so that
gradients are in dB²/m, L in dB²/m² and η_h in m²/dB².
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap._util import checks
from veilmap.errors import ConfigurationError


@dataclass(frozen=True)
class DescentBound:
    """The lemma's constants for given rates, noise and clip.

    In expectation a step of h changes the loss by at most −κ_h‖g‖² + κ_0, a step of θ by at
    most −κ_θ‖∇F(θ)‖².

    Parameters
    ----------
    smoothness : float
        L: the gradient's Lipschitz constant.
    dissimilarity : float
        B ≥ 1: Σ w_i‖g_i‖² ≤ B²‖g‖².
    heterogeneity : float
        J̃ = Σ w_i².
    noise_budget : float
        μ.
    clip : float
        C.
    heights_rate, propagation_rate : float
        η_h, η_θ.
    """

    smoothness: float
    dissimilarity: float
    heterogeneity: float
    noise_budget: float
    clip: float
    heights_rate: float
    propagation_rate: float

    def __post_init__(self) -> None:
        for name in ("smoothness", "clip", "heights_rate", "propagation_rate"):
            checks.number(name, getattr(self, name), above=0)
        _check_spread(self.dissimilarity, self.heterogeneity)
        checks.number("noise_budget", self.noise_budget, least=0)

    @property
    def kappa_h(self) -> float:
        """κ_h = η_h (1/2 − (Lη_h/2) B² (1 + μJ̃)): what ‖g‖² is worth; greatest at η*/2."""
        loudness = self.dissimilarity**2 * (1 + self.noise_budget * self.heterogeneity)
        return self.heights_rate * (0.5 - 0.5 * self.smoothness * self.heights_rate * loudness)

    @property
    def kappa_theta(self) -> float:
        """κ_θ = η_θ − Lη_θ²/2."""
        return self.propagation_rate - 0.5 * self.smoothness * self.propagation_rate**2

    @property
    def kappa_0(self) -> float:
        """κ_0 = η_h B⁴L⁴/(8C²), what clipping may cost, as the paper prints it.

        The paper's proof puts BL where a bound of ‖g_i‖ belongs; L bounds how fast
        gradients change, not how long they are. `clipping_loss` is what the proof gives.
        """
        printed = (self.dissimilarity * self.smoothness) ** 4
        return clipping_loss(self.heights_rate, self.clip, printed)

    @property
    def kappa(self) -> float:
        """κ = min(κ_h, κ_θ); the corollary needs it above 0."""
        return min(self.kappa_h, self.kappa_theta)

    def limit(self, clipping_loss: float | None = None) -> float:
        """√(κ_0/κ): what the corollary says ‖∇F‖ comes down to, on average over rounds.

        Infinite where κ ≤ 0. ``clipping_loss`` takes the place of κ_0.
        """
        loss = self.kappa_0 if clipping_loss is None else clipping_loss
        return float(np.sqrt(loss / self.kappa)) if self.kappa > 0 else float("inf")


def largest_heights_rate(
    smoothness: float, dissimilarity: float, heterogeneity: float, noise_budget: float
) -> float:
    """η* = 1/(LB²(1 + μJ̃)): from this η_h on the lemma promises no descent.

    The promise is best at half of it.
    """
    _check_spread(dissimilarity, heterogeneity)
    checks.number("noise_budget", noise_budget, least=0)
    smoothness = checks.number("smoothness", smoothness, above=0)
    return 1 / (smoothness * dissimilarity**2 * (1 + noise_budget * heterogeneity))


def largest_noise_budget(
    smoothness: float, dissimilarity: float, heterogeneity: float, heights_rate: float
) -> float:
    """μ below which a given η_h still descends: (1/(B²Lη_h) − 1)/J̃.

    Negative where the rate is too large even without noise.
    """
    _check_spread(dissimilarity, heterogeneity)
    rate = checks.number("heights_rate", heights_rate, above=0)
    smoothness = checks.number("smoothness", smoothness, above=0)
    return (1 / (dissimilarity**2 * smoothness * rate) - 1) / heterogeneity


def clipping_loss(heights_rate: float, clip: float, fourth_moment: float) -> float:
    """η_h Σ w_i‖g_i‖⁴/(8C²): most that clipping takes from a step's descent, in F's unit.

    A user's clipped-off part is ‖g_i‖ − C < ‖g_i‖²/2C, and half its mean square enters.
    """
    return heights_rate * fourth_moment / (8 * clip**2)


def heterogeneity(counts: ArrayLike) -> float:
    """J̃ = Σ J_i²/J² of users with J_i links: 1/N if all have as many."""
    weights = _weights(counts)
    return float(weights @ weights)


def dissimilarity(gradients: ArrayLike, counts: ArrayLike) -> float:
    """B of users' gradients (N, M): √(Σ w_i‖g_i‖²)/‖Σ w_i g_i‖.

    1 if all are alike; about 1/√J̃ if no two overlap; infinite if they cancel.
    """
    rows, weights = checks.floats("gradients", gradients), _weights(counts)
    if rows.ndim != 2 or len(rows) != len(weights):
        raise ConfigurationError(
            f"{len(weights)} counts need as many gradients, not shape {rows.shape}", "gradients"
        )
    own = weights @ np.einsum("im,im->i", rows, rows)
    mean = weights @ rows
    together = mean @ mean
    return float(np.sqrt(own / together)) if together > 0 else float("inf")


def largest_curvature(
    gradient: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    point: ArrayLike,
    *,
    iterations: int = 40,
    apart: float = 1e-3,
    seed: int = 0,
) -> float:
    """Largest |eigenvalue| of the Hessian at a point: a lower bound of L, tight nearby.

    Power iteration; Hessian times vector is a central difference of ``gradient`` over
    2 · ``apart``. Costs two gradients an iteration.
    """
    centre = checks.floats("point", point)
    direction = np.random.default_rng(seed).standard_normal(centre.shape)
    curvature = 0.0
    for _ in range(iterations):
        ahead = apart * direction / np.linalg.norm(direction)
        direction = (gradient(centre + ahead) - gradient(centre - ahead)) / (2 * apart)
        curvature = float(np.linalg.norm(direction))
        if curvature == 0:
            break
    return curvature


def _weights(counts: ArrayLike) -> NDArray[np.float64]:
    values = checks.floats("counts", counts)
    if values.ndim != 1 or not (values > 0).all():
        raise ConfigurationError("counts must be positive numbers, one for each user", "counts")
    return values / values.sum()


def _check_spread(dissimilarity: float, heterogeneity: float) -> None:
    # By Jensen's inequality B ≥ 1; a hair below is rounding.
    checks.number("dissimilarity", dissimilarity, least=1 - 1e-9)
    if not 0 < checks.number("heterogeneity", heterogeneity) <= 1:
        raise ConfigurationError(
            f"heterogeneity is above 0 and at most 1, not {heterogeneity:g}", "heterogeneity"
        )
