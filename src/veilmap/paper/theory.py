"""The paper's quantities and bounds as functions.

What the centroid attacker finds under noise (its error, the spatial variance, their limit): one
user's clipped gradient ḡ, noise variances σ², the grid and the true position go in, in metres and
gradient units.

How a user's gradient fades with distance: the attenuation theorem.

What noise and clipping do to training: the descent lemma and its corollary. Users i with weights
w_i = J_i/J send clipped gradients with noise, ḡ_i + n_i, where E‖n_i‖² ≤ μ‖ḡ_i‖², and the server
steps h ← h − η_h Σ w_i (ḡ_i + n_i), θ ← θ − η_θ ∇F(θ). The bounds hold for any smooth loss F; in a
radio map F is in dB², h in metres, so that gradients are in dB²/m, L in dB²/m² and η_h in m²/dB².
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import checks
from veilmap._util.arrays import Bools, Floats, Ints
from veilmap.data.links import Links
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid, paired
from veilmap.model.gradients import gradients_of
from veilmap.model.radio_map import RadioMap

# One step of a ray in rows and columns: the eight directions of a compass.
_COMPASS = [(row, column) for row in (-1, 0, 1) for column in (-1, 0, 1) if row or column]

# ---- what the centroid attacker finds


@dataclass(frozen=True)
class Decomposition:
    """The bias–variance decomposition of the centroid attacker's error."""

    bias: Floats  # Δ_g (2,): centroid of the gradient's energy minus the true position, in metres
    noise: Floats  # Δ_n (2,): the same for the noise
    limit: float  # ‖Δ_g + μ Δ_n‖² / (1 + μ)² in m²: the squared error as the grid grows finer


def localization_limit(
    gradient: ArrayLike, variances: ArrayLike, grid: Grid, user_xy: ArrayLike
) -> Decomposition:
    """What the squared error of the centroid attacker (ν = 2) tends to on fine grids."""
    energy, noise, position = _energies(gradient, variances, grid, user_xy)
    bias = _centroid(energy, grid) - position
    if noise.sum() == 0:
        return Decomposition(bias, np.zeros(2), float(bias @ bias))
    drift = _centroid(noise, grid) - position
    budget = noise.sum() / energy.sum()  # μ, as it was really spent
    error = (bias + budget * drift) / (1 + budget)
    return Decomposition(bias, drift, float(error @ error))


def attacker_error(
    gradient: ArrayLike, variances: ArrayLike, grid: Grid, user_xy: ArrayLike
) -> float:
    """P: expected squared error of the centroid attacker (ν = 2), in m².

    The limit plus its second-order correction for finitely many cells: with weights
    X_m = G̃_m², means w, variances s = 2(w² − ḡ⁴) and e the limit's error,
    E‖ΣXc/ΣX − p‖² ≈ ‖e‖² + W⁻² Σ s_m (‖d_m − e‖² − 2 e·(d_m − e)), d = c − p.
    """
    energy, noise, position = _energies(gradient, variances, grid, user_xy)
    mean = energy + noise
    total = mean.sum()
    away = grid.centres - position
    error = mean @ away / total
    spread = 2 * (mean**2 - energy**2)
    apart = away - error
    correction = spread @ (np.sum(apart**2, axis=1) - 2 * apart @ error) / total**2
    return float(error @ error + correction)


def spatial_variance(gradient: ArrayLike, variances: ArrayLike) -> float:
    """V: expected sample variance of the upload's energy G̃² over the map, exactly.

    E G̃⁴ = 3w² − 2ḡ⁴ with w = ḡ² + σ². Uniform noise has V > 0 as well: its square
    still scatters, by 2σ⁴ a cell.
    """
    energy = checks.floats("gradient", gradient) ** 2
    mean = energy + checks.floats("variances", variances)
    cells = len(mean)
    fourth = 3 * mean**2 - 2 * energy**2
    of_mean = np.sum(2 * (mean**2 - energy**2)) / cells**2  # Var of the sample mean
    return float(fourth.mean() - of_mean - mean.mean() ** 2)


def _energies(
    gradient: ArrayLike, variances: ArrayLike, grid: Grid, user_xy: ArrayLike
) -> tuple[Floats, Floats, Floats]:
    energy = checks.floats("gradient", gradient) ** 2
    noise = checks.floats("variances", variances)
    if energy.shape != (grid.cells,) or noise.shape != (grid.cells,):
        raise ConfigurationError(
            f"gradient and variances need {grid.cells} entries each", "gradient"
        )
    if not np.isfinite(energy + noise).all() or (noise < 0).any():
        raise ConfigurationError(
            "gradient and variances must be finite, variances not negative", "variances"
        )
    if energy.sum() + noise.sum() == 0:
        raise ConfigurationError("a gradient of zeros without noise has no centroid", "gradient")
    return energy, noise, checks.points("user_xy", user_xy, columns=2)


def _centroid(weights: Floats, grid: Grid) -> Floats:
    return weights @ grid.centres / weights.sum()


# ---- how gradients fade with distance


def expected_energy(
    radio_map: RadioMap,
    true_gain_db: ArrayLike,
    user_xyz: ArrayLike,
    bs_xyz: ArrayLike,
    noise_db: float,
) -> Floats:
    """E{G_m²} of one user over the measurement noise, exactly: (M,), in (dB²/m)².

    A gradient is linear in the residuals r = y − γ: with s_jm = ∂γ_j/∂h_m,
    G_m = −(2/J) Σ_j r_j s_jm, so that E{G_m²} = (4/J²) [(Σ_j E{r_j} s_jm)² + σ² Σ_j s_jm²].

    ``radio_map`` is the map as it is believed, h and θ; ``true_gain_db`` (J,) is what the links
    show without noise, γ(p; h*); of their ends (J, 3) one may be a single point; σ is ``noise_db``.
    """
    user, bs = paired(user_xyz, bs_xyz)
    truth = checks.floats("true_gain_db", true_gain_db)
    if truth.shape != (len(user),):
        raise ConfigurationError(
            f"{len(user)} links need as many gains, not shape {truth.shape}", "true_gain_db"
        )
    predicted = radio_map.predict(user, bs)
    # Each link as a user of its own whose residual is 1 dB: its gradient is −2 s_j.
    alone = Links(np.arange(len(user) + 1), user, bs, predicted + 1.0)
    slopes = -0.5 * gradients_of(radio_map, alone).height_gradient
    noise = checks.number("noise_db", noise_db, least=0)
    systematic = (truth - predicted) @ slopes
    return 4 / len(user) ** 2 * (systematic**2 + noise**2 * np.sum(slopes**2, axis=0))


def rays(grid: Grid, xy: ArrayLike) -> list[Ints]:
    """Cells c_m = c_0 + mδ from the cell of a point to the edge, in eight directions."""
    start = int(grid.cell_of(xy))
    if start < 0:
        raise ConfigurationError(f"the point {xy!r} is not on the grid", "xy")
    rows, columns = grid.shape
    row, column = divmod(start, columns)
    steps = np.arange(max(rows, columns))
    found = []
    for up, right in _COMPASS:
        r, c = row + up * steps, column + right * steps
        inside = (r >= 0) & (r < rows) & (c >= 0) & (c < columns)
        found.append((r * columns + c)[inside])
    return found


def rises(energy: ArrayLike, least: float = 0.0) -> Bools:
    """Where E{G²} along a ray is larger than one cell nearer, against the theorem.

    (n − 1,); steps between cells that both hold less than ``least`` do not count.
    """
    values = checks.floats("energy", energy)
    nearer, farther = values[:-1], values[1:]
    return (farther > nearer * (1 + 1e-9)) & (np.maximum(nearer, farther) > least)


# ---- what noise and clipping do to training


@dataclass(frozen=True)
class DescentBound:
    """The lemma's constants for given rates, noise and clip.

    In expectation a step of h changes the loss by at most −κ_h‖g‖² + κ_0, a step of θ by at
    most −κ_θ‖∇F(θ)‖².
    """

    smoothness: float  # L: the gradient's Lipschitz constant
    dissimilarity: float  # B ≥ 1: Σ w_i‖g_i‖² ≤ B²‖g‖²
    heterogeneity: float  # J̃ = Σ w_i²
    noise_budget: float  # μ
    clip: float  # C
    heights_rate: float  # η_h
    propagation_rate: float  # η_θ

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
    gradient: Callable[[Floats], Floats],
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


def _weights(counts: ArrayLike) -> Floats:
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
