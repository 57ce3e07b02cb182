"""The radio map: virtual obstacles on a grid, and laws for clear and blocked links."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap._kernels import degrees
from veilmap._kernels import links as kernels
from veilmap._kernels.arguments import LinkEnds, MapArrays, Terrain
from veilmap._util import checks, threads
from veilmap._util.arrays import Array, Bools, Floats, Ints
from veilmap._util.ids import Id
from veilmap.data.antennas import Antennas
from veilmap.data.links import Links
from veilmap.errors import ConfigurationError, DataError
from veilmap.geometry.grid import Grid, paired
from veilmap.model import netcdf
from veilmap.model import offsets as no_offsets
from veilmap.model.field import NO_DEVIATIONS, Field
from veilmap.model.offsets import Offsets
from veilmap.model.propagation import Propagation

# exp(±600) is a float; the kernels multiply exponentials of half the map's height range.
_WIDEST_EXPONENT = 600.0

_PAPERS = Propagation()

# Singular values of a fit of θ, as a share of the largest, below which there is noise only.
_HARDLY_TOLD = 1e-3


class HasLinks(Protocol):
    """Anything with measurements laid out by user, such as `Measurements`."""

    @property
    def links(self) -> Links:
        """Measurements laid out by user."""


def log_distance(user_xyz: ArrayLike, bs_xyz: ArrayLike) -> Floats:
    """log10 of each link's length in metres; links under 1 m count as 1 m."""
    apart = np.linalg.norm(np.asarray(user_xyz) - np.asarray(bs_xyz), axis=-1)
    return np.asarray(np.log10(np.maximum(apart, kernels.NEAREST)))


class HasMeasurements(Protocol):
    """Links with both ends, and who was at them."""

    @property
    def user_xyz(self) -> Floats:
        """(J, 3) in metres."""

    @property
    def bs_xyz(self) -> Floats:
        """(J, 3) in metres."""

    @property
    def bs(self) -> Array | None:
        """Ids of base stations, (J,)."""

    @property
    def device(self) -> Array | None:
        """Kinds of devices, (J,)."""


@dataclass(frozen=True, eq=False)
class RadioMap:
    """Gain between any place and any base station, from obstacle heights on a grid.

    The smooth model mixes the two propagation laws by S = Π ψ(sharpness · (z_m − h_m)) over
    the cells under the link, with ψ the logistic function; the segmented model takes the
    clear law where h_m < z_m in every such cell, the blocked law elsewhere. With laws between
    the two (see `Propagation`) powers of S share a link among all of them.

    Parameters
    ----------
    heights : array
        h: obstacle height of every cell in metres, (M,) or (rows, columns). Heights below
        ground are allowed: they say that a cell is certainly clear.
    sharpness : float
        Scales ψ, per metre; 1 in the paper.
    offsets : Offsets
        What base stations and kinds of devices read beside the truth, in dB.
    field : Field, optional
        What obstacles leave over, for known base stations, in dB.
    antennas : Antennas, optional
        Patterns of base stations, known by their ids; all are isotropic by default.
    """

    grid: Grid
    heights: Floats
    propagation: Propagation = _PAPERS
    sharpness: float = 1.0
    offsets: Offsets = no_offsets.NONE
    field: Field | None = None
    antennas: Antennas | None = None

    def __post_init__(self) -> None:
        sharpness = checks.number("sharpness", self.sharpness, above=0)
        heights = checks.floats("heights", self.heights)
        if heights.shape not in ((self.grid.cells,), self.grid.shape):
            raise ConfigurationError(
                f"heights have shape {heights.shape}; the grid needs {self.grid.shape}"
                f" or ({self.grid.cells},)"
            )
        if not np.isfinite(heights).all():
            raise ConfigurationError("heights must be finite")
        if sharpness * np.ptp(heights) > 2 * _WIDEST_EXPONENT:
            raise ConfigurationError(
                f"sharpness {sharpness:g} per metre is too steep for heights that span"
                f" {np.ptp(heights):g} m; use predict(..., smooth=False) for a hard edge"
            )
        heights = np.array(heights, order="C").reshape(self.grid.shape)
        heights.flags.writeable = False
        object.__setattr__(self, "heights", heights)
        object.__setattr__(self, "sharpness", sharpness)

    @cached_property
    def kernel_model(self) -> MapArrays:
        """The map as the kernels take it."""
        low, high = float(self.heights.min()), float(self.heights.max())
        datum = 0.5 * (low + high)  # centred, so that exponentials of the range stay finite
        raised = np.exp(self.sharpness * (self.heights.ravel() - datum))
        top = high - math.log(kernels.CLEAR) / self.sharpness
        terrain = Terrain(raised=raised, top=top, datum=datum, sharpness=self.sharpness)
        return MapArrays(frame=self.grid.frame, terrain=terrain, laws=self.propagation.kernel_laws)

    @property
    def theta(self) -> Floats:
        """θ: all that is linear in the model: the laws' parameters, then the offsets."""
        return np.append(self.propagation.as_array(), self.offsets.values)

    @property
    def trained_grid(self) -> Grid:
        """Where the parameters lie that gradients are of: the field's, once there is one."""
        return self.grid if self.field is None else self.field.grid

    @property
    def trained_cells(self) -> int:
        """How many numbers gradients have.

        For a field two layers over its grid for each base station: slopes, and curvatures.
        """
        return self.grid.cells if self.field is None else 2 * self.field.values.size

    def moved_to(
        self, heights: ArrayLike, theta: NDArray[np.floating], sharpness: float | None = None
    ) -> "RadioMap":
        """The same map with other parameters, ``theta`` as in `theta`."""
        laws = 2 * self.propagation.laws
        return RadioMap(
            self.grid, np.asarray(heights),
            Propagation.from_array(theta[:laws], self.propagation.powers),
            self.sharpness if sharpness is None else sharpness,
            self.offsets.moved_to(theta[laws:]), self.field, self.antennas,
        )  # fmt: skip

    def as_arrays(self) -> dict[str, Any]:
        """All but the grid, for files and messages."""
        return {
            "heights": self.heights,
            "theta": self.theta,
            "sharpness": self.sharpness,
            "powers": np.array(self.propagation.powers),
            "offsets": json.dumps([self.offsets.stations, self.offsets.devices]),
            **({} if self.field is None else self.field.as_arrays()),
            **({} if self.antennas is None else {"antennas": self.antennas.as_text()}),
        }

    @classmethod
    def from_arrays(cls, grid: Grid, arrays: Mapping[str, Any]) -> "RadioMap":
        """What `as_arrays` gave."""
        if np.size(arrays["heights"]) != grid.cells:
            raise DataError(f"{np.size(arrays['heights'])} heights for {grid.cells} cells")
        powers = np.asarray(arrays["powers"])
        start = Propagation.from_array(np.zeros(4 + 2 * len(powers)), powers)
        offsets = Offsets(*json.loads(str(arrays["offsets"])))
        field = Field.from_arrays(arrays, grid.crs) if "field" in arrays else None
        known = Antennas.from_text(str(arrays["antennas"])) if "antennas" in arrays else None
        flat = cls(grid, np.zeros(grid.cells), start, offsets=offsets, field=field, antennas=known)
        return flat.moved_to(arrays["heights"], arrays["theta"], float(arrays["sharpness"]))

    def los_weight(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> Floats:
        """S of each link: 1 for a clear one, 0 for a blocked one."""
        return self._for_links(kernels.los_weights, paired(user_xyz, bs_xyz))

    def obstruction(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> Floats:
        """−log S of each link: 0 for a clear one, the more the deeper it is blocked."""
        return self._for_links(degrees.obstructions, paired(user_xyz, bs_xyz))

    def _for_links(self, kernel: Callable[..., None], ends: LinkEnds) -> Floats:
        """What a kernel finds for each link, (J,)."""
        found = np.empty(len(ends.user))
        run = partial(kernel, ends=ends, model=self.kernel_model, out=found)
        threads.run_parts(lambda a, b: run(start=a, stop=b), threads.even_parts(len(found)))
        return found

    def clear(self, user_xyz: ArrayLike, bs_xyz: ArrayLike) -> Bools:
        """Whether every obstacle under a link is lower than it (the segmented model)."""
        ends = paired(user_xyz, bs_xyz)
        clear = np.empty(len(ends.user), dtype=np.bool_)
        given = {"ends": ends, "frame": self.grid.frame, "heights": self.heights.ravel()}
        run = partial(kernels.clear_of_obstacles, **given, clear=clear)
        threads.run_parts(lambda a, b: run(start=a, stop=b), threads.even_parts(len(clear)))
        return clear

    @overload
    def predict(
        self,
        user_xyz: ArrayLike,
        bs_xyz: ArrayLike,
        *,
        station: Id | None = None,
        smooth: bool = True,
        return_std: Literal[False] = False,
    ) -> Floats: ...

    @overload
    def predict(
        self,
        user_xyz: ArrayLike,
        bs_xyz: ArrayLike,
        *,
        station: Id | None = None,
        smooth: bool = True,
        return_std: Literal[True],
    ) -> tuple[Floats, Floats]: ...

    def predict(
        self,
        user_xyz: ArrayLike,
        bs_xyz: ArrayLike,
        *,
        station: Id | None = None,
        smooth: bool = True,
        return_std: bool = False,
    ) -> Floats | tuple[Floats, Floats]:
        """Gain of each link in dB, (J,); one end may be a single point for all links.

        ``station`` is the id of the base station that all are to: with what the map knows of it,
        its offset, pattern and field, as calibrated devices would read it. Without an id antennas
        are isotropic and all send alike. ``smooth=False`` takes the clear or the blocked law,
        whatever lies between. ``return_std`` adds the standard deviation of a reading, (J,), which
        maps of surveys and of pooled fields have.
        """
        user, mast = paired(user_xyz, bs_xyz)
        bs = None if station is None else np.full(len(user), station)
        gain = self._gain(user, mast, smooth, bs)
        return (gain, self.deviation(user, mast, bs)) if return_std else gain

    def deviation(self, user_xyz: ArrayLike, bs_xyz: ArrayLike, bs: Array | None = None) -> Floats:
        """Standard deviation of a reading on each link, (J,), in dB, where it is known."""
        if self.field is None:
            raise ConfigurationError(NO_DEVIATIONS)
        return self.field.deviation_at(user_xyz, bs_xyz, bs)

    def _gain(
        self,
        user: Floats,
        mast: Floats,
        smooth: bool,
        bs: Array | None,
        device: Array | None = None,
    ) -> Floats:
        """What the map says, with all that it knows base stations by if there are ids."""
        if smooth and self.propagation.between:
            depths = self.obstruction(user, mast)
            gains = self.propagation.mixed_gain(log_distance(user, mast), depths)
        else:
            los = self.los_weight(user, mast) if smooth else self.clear(user, mast)
            gains = self.propagation.gain(log_distance(user, mast), los)
        if self.field is not None:
            gains = gains + self.field.at(user, mast, bs)
        if bs is not None and len(self.offsets):
            gains = gains + self.offsets.of(bs, device)
        if bs is not None and self.antennas is not None:
            gains = gains + self.antennas.of(bs, user, mast)
        return gains

    def predict_links(self, data: "HasMeasurements") -> Floats:
        """What the devices of ``data`` would read on its links, (J,), in dB.

        With offsets, patterns and fields of those base stations that the map knows by id.
        """
        return self._gain(*paired(data.user_xyz, data.bs_xyz), True, data.bs, data.device)

    def predict_area(
        self, bs_xyz: ArrayLike, *, altitude: float = 1.5, smooth: bool = True
    ) -> Floats:
        """Gain from one base station to every cell's centre, (rows, columns), in dB.

        ``altitude`` is the receivers' height above ground in metres.
        """
        bs = checks.points("bs_xyz", bs_xyz)
        if bs.shape != (3,):
            raise ConfigurationError("predict_area takes one base station: bs_xyz of shape (3,)")
        ground = np.full(self.grid.cells, checks.number("altitude", altitude))
        places = np.column_stack([self.grid.centres, ground])
        return self.predict(places, bs, smooth=smooth).reshape(self.grid.shape)

    def loss(self, data: HasLinks) -> float:
        """F: mean squared error over all links, in dB²."""
        links = data.links
        return float(np.mean((links.gain_db - self.predict_links(links)) ** 2))

    def fit_propagation(self, data: HasLinks) -> "RadioMap":
        """The same obstacles with the θ that fits ``data`` best.

        Given S, the model is linear in θ: one least-squares problem. What the links hardly tell,
        such as the law of blocked links where all are clear, stays as it is.
        """
        links = self.without_patterns(data.links)
        columns = self.by_theta(links)
        start = np.append(self.propagation.as_array(), np.zeros(len(self.offsets)))
        change = np.linalg.lstsq(columns, links.gain_db - columns @ start, rcond=_HARDLY_TOLD)[0]
        return self.moved_to(self.heights, self._centred(start + change, columns))

    def by_theta(self, links: Links) -> Floats:
        """∂γ/∂θ of each link, (J, P): the gain less antenna patterns is this times θ."""
        depths = self.obstruction(links.user_xyz, links.bs_xyz)
        log_d = log_distance(links.user_xyz, links.bs_xyz)
        shares = self.propagation.shares(depths)
        design = np.stack([shares, shares * log_d], axis=1).reshape(2 * len(shares), -1).T
        applies = np.zeros((len(log_d), len(self.offsets) + 1))  # the last one is nobody's
        for numbers in self.offset_numbers(links):
            applies[np.arange(len(log_d)), numbers] = 1.0
        return np.hstack([design, applies[:, :-1]])

    def _centred(self, theta: Floats, columns: Floats) -> Floats:
        """The same gains with offsets of mean 0: what they have in common is the laws'."""
        laws = 2 * self.propagation.laws
        middle = laws + len(self.offsets.stations)
        for first, last in ((laws, middle), (middle, len(theta))):
            used = columns[:, first:last] != 0
            if used.any(axis=1).all():  # else links without an offset tell the level
                heard = first + np.flatnonzero(used.any(axis=0))
                common = theta[heard].mean()
                theta[heard] -= common
                theta[:laws:2] += common
        return theta

    def without_patterns(self, links: Links) -> Links:
        """The links as isotropic antennas would have them: what is left for laws to explain."""
        if self.antennas is None or links.bs is None:
            return links
        pattern = self.antennas.of(links.bs, links.user_xyz, links.bs_xyz)
        return replace(links, gain_db=links.gain_db - pattern)

    def offset_numbers(self, links: Links) -> Ints:
        """Which offset of its station and which of its device apply to each link; −1: none."""
        if len(self.offsets) == 0 or links.bs is None:
            return np.full((2, len(links.gain_db)), -1)
        return self.offsets.numbers_of(links.bs, links.device)

    def save(self, path: str | Path) -> None:
        """Write a netCDF file with units and coordinates."""
        netcdf.save(
            netcdf.MapContent(*(getattr(self, each.name) for each in fields(self))), Path(path)
        )

    @classmethod
    def load(cls, path: str | Path) -> "RadioMap":
        """Read what `save` wrote."""
        return cls(*netcdf.load(Path(path)))
