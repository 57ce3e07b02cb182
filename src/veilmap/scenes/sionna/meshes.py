"""The surfaces of a Sionna RT scene: how high, what they hide, and the paths between them.

The only place with Sionna RT, Mitsuba and Dr.Jit.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import files
from veilmap._util.arrays import Bools, Floats
from veilmap.errors import DataError
from veilmap.geometry.grid import Grid
from veilmap.scenes.sionna import trial

# Rays × base stations that are traced at once: some 1 GB.
_MOST_TARGETED = 4_000_000
# Heights come in single precision; less than this is the ground.
_FLAT = 0.01
# A map's heights are above flat ground. Ground that rises more than this is terrain.
_MOST_RISE = 1.0
_SHORT_OF = 1 - 1e-4  # a link's last part does not count: a station may stand on a roof


@dataclass(frozen=True, eq=False)
class Meshes:
    """A scene of Sionna RT over flat ground.

    ``source`` is the name or file it came from, ``ground`` the z of the ground in the scene's own
    coordinates; everywhere here z is above it.
    """

    source: str
    ground: float
    _scene: Any = field(repr=False)

    @classmethod
    def load(cls, source: str | Path) -> "Meshes":
        """A scene that ships with Sionna RT, or a Mitsuba file; z as it is there."""
        trial.check()
        return cls(str(source), 0.0, _loaded(source))

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """(west, east, south, north) of everything there is, in metres."""
        (west, south, _), (east, north, _) = self._bounds
        return west, east, south, north

    @cached_property
    def _bounds(self) -> list[list[float]]:
        """The lowest and the highest coordinates, of the vertices themselves.

        Mitsuba's own bounding box of merged shapes leaves out flat rectangles.
        """
        import mitsuba as mi

        ends = []
        for shape in self._scene.mi_scene.shapes():
            corners = np.array(mi.traverse(shape)["vertex_positions"]).reshape(-1, 3)
            ends += [corners.min(axis=0), corners.max(axis=0)]
        return [np.min(ends, axis=0).tolist(), np.max(ends, axis=0).tolist()]

    def grounded(self, grid: Grid) -> "Meshes":
        """The same with z above the ground of ``grid``: the lowest surface seen from above."""
        above = self._surfaces(grid, from_above=True)
        below = self._surfaces(grid, from_above=False)
        if np.isnan(above).all():
            raise DataError(f"{self.source} has no surface in {grid.extent}: another extent?")
        low, high = np.nanpercentile(below, [5, 95])
        if high - low > _MOST_RISE:
            raise DataError(
                f"the ground of {self.source} rises by {high - low:.0f} m, and maps are made on"
                " flat ground; take a smaller extent"
            )
        return replace(self, ground=self.ground + float(np.nanmin(above)))

    def heights(self, grid: Grid) -> Floats:
        """The highest surface over each cell's centre, (rows, columns); 0 for open ground."""
        above = self._surfaces(grid, from_above=True)
        # Where a scene has no surface at all, nothing stands in the way.
        return np.where(above > _FLAT, above, 0.0).reshape(grid.shape)

    def _surfaces(self, grid: Grid, *, from_above: bool) -> Floats:
        """The first surface above or below each cell's centre, (M,); NaN where there is none."""
        import mitsuba as mi

        (*_, lowest), (*_, highest) = self._bounds
        start, way = (highest + 1.0, -1.0) if from_above else (lowest - 1.0, 1.0)
        x, y = grid.centres.T
        origin = mi.Point3f(np.stack([x, y, np.full(grid.cells, start)]))
        hit = self._scene.mi_scene.ray_intersect(mi.Ray3f(origin, mi.Vector3f(0.0, 0.0, way)))
        z = np.array(hit.p.z, dtype=np.float64) - self.ground
        return np.where(np.array(hit.is_valid(), dtype=bool), z, np.nan)

    def covered(self, xyz: Floats) -> Bools:
        """Whether there is a surface above each point: it is indoors, or below a roof."""
        return self._hidden(xyz, np.broadcast_to([0.0, 0.0, 1.0], xyz.shape), np.inf)

    def clear(self, user_xyz: Floats, bs_xyz: Floats) -> Bools:
        """Whether no surface stands in each link's way."""
        way = bs_xyz - user_xyz
        length = np.linalg.norm(way, axis=1)
        unit = way / np.maximum(length, 1e-9)[:, None]
        return ~self._hidden(user_xyz, unit, length * _SHORT_OF)

    def _hidden(self, xyz: Floats, direction: Floats, reach: ArrayLike) -> Bools:
        import mitsuba as mi

        start = mi.Point3f(self._own(xyz).T)
        ray = mi.Ray3f(start, mi.Vector3f(direction.T))
        ray.maxt = mi.Float(np.broadcast_to(reach, len(xyz)).astype(np.float32))
        return np.array(self._scene.mi_scene.ray_test(ray), dtype=bool)

    def _own(self, xyz: Floats) -> Floats:
        """Points in the scene's own coordinates."""
        return np.add(xyz, [0.0, 0.0, self.ground])

    def gains(
        self,
        user_xyz: Floats,
        bs_xyz: Floats,
        *,
        frequency: float,
        max_depth: int,
        samples: int,
        seed: int,
    ) -> Floats:
        """Gain in dB of every user and base station, (N, B); −inf where no path was found.

        Rays start at the users, one user at a time, so that memory does not grow with users and
        a user's gains do not depend on the others. Σ|a|²: powers of paths are added, as in a
        mean over places within some wavelengths.
        """
        self._tune(frequency)
        options = {"max_depth": max_depth, "samples_per_src": samples, "seed": seed}
        at_once = max(1, _MOST_TARGETED // samples)
        power = np.empty((len(user_xyz), len(bs_xyz)))
        for first in range(0, len(bs_xyz), at_once):
            block = slice(first, first + at_once)
            self._place("Receiver", bs_xyz[block])
            for user in range(len(user_xyz)):
                self._place("Transmitter", user_xyz[user : user + 1])
                power[user, block] = self._powers(options)
        with np.errstate(divide="ignore"):
            return 10 * np.log10(power)

    def _tune(self, frequency: float) -> None:
        """Isotropic antennas, vertically polarised, at a frequency that the materials know."""
        from sionna import rt

        one = rt.PlanarArray(num_rows=1, num_cols=1, pattern="iso", polarization="V")
        self._scene.tx_array = self._scene.rx_array = one
        try:
            self._scene.frequency = frequency
        except ValueError as error:
            raise DataError(f"{self.source} at {frequency:g} Hz: {error}") from None

    def _place(self, kind: str, xyz: Floats) -> None:
        """Replace the scene's transmitters or receivers."""
        from sionna import rt

        old = self._scene.transmitters if kind == "Transmitter" else self._scene.receivers
        for name in list(old):
            self._scene.remove(name)
        for number, place in enumerate(self._own(xyz).tolist()):
            self._scene.add(getattr(rt, kind)(f"{kind} {number}", position=place))

    def _powers(self, options: dict[str, int]) -> Floats:
        """Σ|a|² over the paths from the transmitter to every receiver."""
        from sionna import rt

        # Walls are not transparent: with refraction, Sionna RT takes buildings for empty shells.
        # In the lit region diffraction corrects the direct path's phase, which powers lose.
        paths = rt.PathSolver(deterministic=True)(
            self._scene, refraction=False, diffraction=True, diffraction_lit_region=False, **options
        )
        real, imaginary = (np.array(part, dtype=np.float64) for part in paths.a)
        return np.asarray(
            (real**2 + imaginary**2).reshape(len(self._scene.receivers), -1).sum(axis=1)
        )


def _loaded(source: str | Path) -> Any:
    """The Sionna RT scene of a name or a file."""
    from sionna import rt

    own = {
        name: file
        for name, file in vars(rt.scene).items()
        if isinstance(file, str) and file.endswith(".xml")
    }
    if str(source) not in own and Path(source).suffix.lower() != ".xml":
        raise DataError(
            f"{source} is neither a Mitsuba file (.xml) nor a scene of Sionna RT: {', '.join(own)}"
        )
    file = own.get(str(source)) or str(files.existing(source))
    try:
        # Edges diffract where two faces share their vertices, which many files repeat.
        return rt.load_scene(file, remove_duplicate_vertices=True)
    except KeyError:
        raise DataError(
            f"{source} has a rectangle, which Sionna RT does not take; make it a mesh (ply or obj)"
        ) from None
    except Exception as error:  # Mitsuba's parser, materials and meshes each raise their own
        reason = (str(error).splitlines() or [type(error).__name__])[-1].strip()
        raise DataError(f"{source} cannot be read as a scene of Sionna RT: {reason}") from None
