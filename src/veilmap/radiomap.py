"""The radio map: virtual obstacles on a grid and two propagation laws."""

import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap import _checks, _threads
from veilmap._kernels import links as kernels
from veilmap.errors import VeilmapError
from veilmap.geometry import Grid, paired
from veilmap.links import Links

# exp(±600) is a float; the kernels multiply exponentials of half the map's height range.
_WIDEST_EXPONENT = 600.0

# Users whose gradients are held at once: 64 rows of 10,000 cells are 5 MB.
_USERS_PER_BLOCK = 64


class HasLinks(Protocol):
    """Anything with measurements laid out by user, such as `Measurements`."""

    @property
    def links(self) -> Links:
        """Measurements laid out by user."""
        ...


@dataclass(frozen=True)
class Propagation:
    """θ: gain = intercept + slope · log10(distance in metres), for clear and blocked links.

    Intercepts are in dB at 1 m, slopes in dB per decade of distance (negative).
    """

    los_intercept: float = -30.0
    los_slope: float = -22.0
    nlos_intercept: float = -38.0
    nlos_slope: float = -28.0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            object.__setattr__(self, name, _checks.number(name, getattr(self, name)))

    @classmethod
    def from_array(cls, theta: ArrayLike) -> "Propagation":
        """From (β₀, α₀, β₁, α₁)."""
        values = _checks.floats("theta", theta)
        if values.shape != (4,):
            raise VeilmapError(f"theta must have 4 entries, not shape {values.shape}")
        return cls(*values.tolist())

    def as_array(self) -> NDArray[np.float64]:
        """(β₀, α₀, β₁, α₁)."""
        return np.array(astuple(self))

    def gain(self, log_distance: NDArray[np.float64], los: NDArray) -> NDArray[np.float64]:
        """Gain in dB where ``los`` is the share (0 … 1) or truth of line of sight."""
        clear = self.los_intercept + self.los_slope * log_distance
        blocked = self.nlos_intercept + self.nlos_slope * log_distance
        return clear * los + blocked * (1.0 - los)


def log_distance(user_xyz: ArrayLike, bs_xyz: ArrayLike) -> NDArray[np.float64]:
    """log10 of each link's length in metres; links under 1 m count as 1 m."""
    apart = np.linalg.norm(np.asarray(user_xyz) - np.asarray(bs_xyz), axis=-1)
    return np.log10(np.maximum(apart, kernels.NEAREST))


@dataclass(frozen=True)
class LocalGradients:
    """What each user's own data says about the map.

    Attributes
    ----------
    loss : (N,) float
        F_i: mean squared error of user i, in dB².
    heights : (N, M) float
        ∂F_i/∂h, in dB² per metre.
    propagation : (N, 4) float
        ∂F_i/∂θ for (β₀, α₀, β₁, α₁).
    counts : (N,) int
        J_i: links of user i.
    """

    loss: NDArray[np.float64]
    heights: NDArray[np.float64]
    propagation: NDArray[np.float64]
    counts: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RadioMap:
    """Gain between any place and any base station, from obstacle heights on a grid.

    The smooth model mixes the two propagation laws by S = Π ψ(sharpness · (z_m − h_m)) over
    the cells under the link, with ψ the logistic function; the segmented model takes the
    clear law where h_m < z_m in every such cell, the blocked law elsewhere.

    Parameters
    ----------
    grid : Grid
    heights : array
        h: obstacle height of every cell in metres, (M,) or (rows, columns). Heights below
        ground are allowed: they say that a cell is certainly clear.
    propagation : Propagation
    sharpness : float
        Scales ψ, per metre; 1 in the paper.
    """

    grid: Grid
    heights: NDArray[np.float64]
    propagation: Propagation = Propagation()
    sharpness: float = 1.0

    def __post_init__(self) -> None:
        sharpness = _checks.number("sharpness", self.sharpness, above=0)
        heights = _checks.floats("heights", self.heights)
        if heights.shape not in ((self.grid.cells,), self.grid.shape):
            raise VeilmapError(
                f"heights have shape {heights.shape}; the grid needs {self.grid.shape}"
                f" or ({self.grid.cells},)"
            )
        if not np.isfinite(heights).all():
            raise VeilmapError("heights must be finite")
        if sharpness * np.ptp(heights) > 2 * _WIDEST_EXPONENT:
            raise VeilmapError(
                f"sharpness {sharpness:g} per metre is too steep for heights that span"
                f" {np.ptp(heights):g} m; use predict(..., smooth=False) for a hard edge"
            )
        heights = np.array(heights, order="C").reshape(self.grid.shape)
        heights.flags.writeable = False
        object.__setattr__(self, "heights", heights)
        object.__setattr__(self, "sharpness", sharpness)

    @cached_property
    def terrain(self) -> tuple[NDArray[np.float64], float, float, float]:
        """The map as the kernels take it."""
        low, high = float(self.heights.min()), float(self.heights.max())
        datum = 0.5 * (low + high)  # centred, so that exponentials of the range stay finite
        raised = np.exp(self.sharpness * (self.heights.ravel() - datum))
        top = high - math.log(kernels.CLEAR) / self.sharpness
        return raised, top, datum, self.sharpness

    def los_weight(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> NDArray[np.float64]:
        """S of each link: 1 for a clear one, 0 for a blocked one."""
        user, bs = paired(user_xyz, bs_xyz)
        weights = np.empty(len(user))

        def part(start: int, stop: int) -> None:
            kernels.los_weights(start, stop, user, bs, self.grid.frame, self.terrain, weights)

        _threads.run_parts(part, _threads.even_parts(len(user)))
        return weights

    def clear(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> NDArray[np.bool_]:
        """Whether every obstacle under a link is lower than it (the segmented model)."""
        user, bs = paired(user_xyz, bs_xyz)
        clear = np.empty(len(user), dtype=np.bool_)
        heights = self.heights.ravel()

        def part(start: int, stop: int) -> None:
            kernels.clear_of_obstacles(start, stop, user, bs, self.grid.frame, heights, clear)

        _threads.run_parts(part, _threads.even_parts(len(user)))
        return clear

    def predict(
        self, user_xyz: ArrayLike, bs_xyz: ArrayLike, *, smooth: bool = True
    ) -> NDArray[np.float64]:
        """Gain of each link in dB, (J,); one end may be a single point for all links."""
        user, bs = paired(user_xyz, bs_xyz)
        los = self.los_weight(user, bs) if smooth else self.clear(user, bs)
        return self.propagation.gain(log_distance(user, bs), los)

    def predict_area(
        self, bs_xyz: ArrayLike, *, altitude: float = 1.5, smooth: bool = True
    ) -> NDArray[np.float64]:
        """Gain from one base station to every cell's centre, (rows, columns), in dB.

        ``altitude`` is the receivers' height above ground in metres.
        """
        bs = _checks.points("bs_xyz", bs_xyz)
        if bs.shape != (3,):
            raise VeilmapError("predict_area takes one base station: bs_xyz of shape (3,)")
        ground = np.full(self.grid.cells, _checks.number("altitude", altitude))
        places = np.column_stack([self.grid.centres, ground])
        return self.predict(places, bs, smooth=smooth).reshape(self.grid.shape)

    def loss(self, data: HasLinks) -> float:
        """F: mean squared error over all links, in dB²."""
        links = data.links
        error = links.gain_db - self.predict(links.user_xyz, links.bs_xyz)
        return float(np.mean(error**2))

    def fit_propagation(self, data: HasLinks) -> "RadioMap":
        """The same obstacles with the θ that fits ``data`` best.

        Given S, the model is linear in θ: one least-squares problem.
        """
        links = data.links
        s = self.los_weight(links.user_xyz, links.bs_xyz)
        log_d = log_distance(links.user_xyz, links.bs_xyz)
        design = np.column_stack([s, s * log_d, 1 - s, (1 - s) * log_d])
        theta = np.linalg.lstsq(design, links.gain_db, rcond=None)[0]
        return replace(self, propagation=Propagation.from_array(theta))

    def save(self, path: str | Path) -> None:
        """Write a netCDF file with units and coordinates."""
        from veilmap import _netcdf

        _netcdf.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "RadioMap":
        """Read what `save` wrote."""
        from veilmap import _netcdf

        return _netcdf.load(Path(path))


def local_gradients(radio_map: RadioMap, data: HasLinks) -> LocalGradients:
    """Loss and gradients of every user, in one pass over the links.

    Each user's row costs M floats; `local_gradient_blocks` holds only some at a time.
    """
    return gradients_of(radio_map, data.links)


def local_gradient_blocks(
    radio_map: RadioMap, data: HasLinks, users: int = _USERS_PER_BLOCK
) -> Iterator[LocalGradients]:
    """The same as `local_gradients`, ``users`` users at a time."""
    for block in data.links.blocks(_checks.whole("users", users, least=1)):
        yield gradients_of(radio_map, block)


def gradients_of(radio_map: RadioMap, links: Links) -> LocalGradients:
    """Loss and gradients of every user of ``links``, in one pass."""
    grid = radio_map.grid
    loss = np.empty(links.users)
    by_heights = np.empty((links.users, grid.cells))
    by_theta = np.empty((links.users, 4))
    theta = radio_map.propagation.as_array()

    def part(start: int, stop: int) -> None:
        kernels.user_gradients(
            start, stop, links.offsets, links.user_xyz, links.bs_xyz, links.gain_db,
            grid.frame, radio_map.terrain, theta, loss, by_heights, by_theta,
        )  # fmt: skip

    _threads.run_parts(part, _threads.even_groups(links.offsets))
    return LocalGradients(loss, by_heights, by_theta, links.counts)
