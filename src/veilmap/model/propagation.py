"""θ: how gain falls with distance, for clear links, blocked ones and those in between."""

from dataclasses import astuple, dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from veilmap._kernels.arguments import Laws
from veilmap._util import checks
from veilmap._util.arrays import Array, Floats
from veilmap._util.plain import plain
from veilmap.errors import ConfigurationError

_NAMED = 4  # parameters of the clear and the blocked law


@plain
@dataclass(frozen=True)
class Law:
    """The law of one degree of obstruction between clear and blocked.

    Parameters
    ----------
    intercept, slope : float
        Gain in dB at 1 m, and per decade of distance.
    power : float
        Up to which obstruction it holds: to where S^power falls, with S the product of the
        smooth model. 1 is the clear law's own edge; the smaller, the deeper.
    """

    intercept: float
    slope: float
    power: float

    def __post_init__(self) -> None:
        for name in ("intercept", "slope"):
            object.__setattr__(self, name, checks.number(name, getattr(self, name)))
        power = checks.number("power", self.power, above=0)
        if not 1e-2 <= power < 1:
            raise ConfigurationError(f"a law's power lies between 0.01 and 1, not at {power:g}")
        object.__setattr__(self, "power", power)


@plain
@dataclass(frozen=True)
class Propagation:
    """θ: gain = intercept + slope · log10(distance in metres), for clear and blocked links.

    Intercepts are in dB at 1 m, slopes in dB per decade of distance (negative). With laws
    ``between``, from lightly to heavily obstructed with falling powers p₁ > p₂ > …, the k
    laws share a link by S, S^p₁ − S, S^p₂ − S^p₁, …, 1 − S^p: k = 2 is the paper's model.
    """

    los_intercept: float = -30.0
    los_slope: float = -22.0
    nlos_intercept: float = -38.0
    nlos_slope: float = -28.0
    between: tuple[Law, ...] = ()

    def __post_init__(self) -> None:
        for name in [field.name for field in fields(self)][:_NAMED]:
            object.__setattr__(self, name, checks.number(name, getattr(self, name)))
        object.__setattr__(self, "between", tuple(self.between))
        if any(not isinstance(law, Law) for law in self.between):
            raise ConfigurationError("laws between clear and blocked are given as Law(...)")
        if any(a <= b for a, b in zip(self.powers, self.powers[1:], strict=False)):
            raise ConfigurationError("the laws between need falling powers")

    @classmethod
    def of_degrees(cls, degrees: int) -> "Propagation":
        """A start for training with 2, 3 or 4 degrees of obstruction."""
        powers = {2: (), 3: (0.03,), 4: (0.1, 0.01)}
        if degrees not in powers:
            raise ConfigurationError(f"there are 2, 3 or 4 degrees of obstruction, not {degrees}")
        # All laws start alike at 1 m and fan out, so that each has a side to learn from.
        slopes = np.linspace(-20.0, -30.0, degrees)
        between = tuple(
            Law(-35.0, float(slope), power)
            for slope, power in zip(slopes[1:-1], powers[degrees], strict=True)
        )
        return cls(-35.0, -20.0, -35.0, -30.0, between)

    @property
    def laws(self) -> int:
        """k: degrees of obstruction."""
        return 2 + len(self.between)

    @property
    def powers(self) -> tuple[float, ...]:
        """P of the laws between."""
        return tuple(law.power for law in self.between)

    @classmethod
    def from_array(cls, theta: ArrayLike, powers: ArrayLike = ()) -> "Propagation":
        """From (β₀, α₀, β₁, α₁) and then (β, α) of every law between."""
        values = checks.floats("theta", theta)
        limits = checks.floats("powers", powers).ravel().tolist()
        if values.shape != (_NAMED + 2 * len(limits),):
            raise ConfigurationError(
                f"theta must have {_NAMED + 2 * len(limits)} entries, not shape {values.shape}"
            )
        (los, los_slope), (nlos, nlos_slope), *rest = values.reshape(-1, 2).tolist()
        between = (Law(b, a, power) for (b, a), power in zip(rest, limits, strict=True))
        return cls(los, los_slope, nlos, nlos_slope, tuple(between))

    def as_array(self) -> Floats:
        """(β₀, α₀, β₁, α₁), then (β, α) of every law between."""
        rest = [value for law in self.between for value in (law.intercept, law.slope)]
        return np.array([*astuple(self)[:_NAMED], *rest])

    @property
    def kernel_laws(self) -> Laws:
        """The laws as the kernels take them."""
        return Laws(powers=np.array(self.powers), theta=self.as_array())

    def gain(self, log_distance: Floats, los: Array) -> Floats:
        """Gain in dB where ``los`` is the share (0 … 1) or truth of line of sight."""
        clear = self.los_intercept + self.los_slope * log_distance
        blocked = self.nlos_intercept + self.nlos_slope * log_distance
        return clear * los + blocked * (1.0 - los)

    def shares(self, obstruction: Floats) -> Floats:
        """Each law's share of links with −log S = ``obstruction``, (k, J), in θ's order."""
        powers = np.array([1.0, *self.powers])
        passes = np.exp(-powers[:, None] * obstruction)  # S^p, growing with each row
        return np.vstack([passes[:1], 1.0 - passes[-1:], np.diff(passes, axis=0)])

    def mixed_gain(self, log_distance: Floats, obstruction: Floats) -> Floats:
        """Gain in dB of links with −log S = ``obstruction``, by all k laws."""
        intercepts, slopes = self.as_array().reshape(-1, 2).T
        laws = intercepts[:, None] + slopes[:, None] * log_distance
        return np.asarray(np.einsum("kj,kj->j", self.shares(obstruction), laws))


@lru_cache(maxsize=32)
def at_100_m(laws: int, others: int = 0) -> Floats:
    """A with ∂F/∂(gain at 100 m, slope) = A ∂F/∂(intercept, slope) for each of the laws.

    β = (gain at 100 m) − 2α: intercepts at 1 m are far from any data, and a change of slope
    alone would move every gain. ``others`` are parameters after the laws that stay as they are.
    """
    result = np.eye(2 * laws + others)
    result[: 2 * laws, : 2 * laws] = np.kron(np.eye(laws), [[1.0, 0.0], [-2.0, 1.0]])
    result.flags.writeable = False
    return result
