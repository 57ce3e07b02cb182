"""The grid of cells, and arrays laid out for it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from veilmap._kernels.arguments import Frame, LinkEnds
from veilmap._util import checks
from veilmap._util.arrays import Bools, Floats, Ints
from veilmap._util.plain import plain
from veilmap.errors import ConfigurationError

# A grid this large would take 0.8 GB for one map of heights: surely a slip of units.
_MOST_CELLS = 100_000_000

_CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))  # (north, east) of a point among four centres


@plain
@dataclass(frozen=True)
class Grid:
    """A rectangle of square cells on the ground.

    Cell m = row * columns + column; rows count north (y), columns east (x). The grid is
    closed: a point on a line between two cells belongs to the northern or eastern one,
    a point on the outer edge to the cell it borders.

    Cells have a side of ``cell_size`` metres; ``shape`` is (rows, columns) and ``origin`` the
    (x, y) of the south-west corner in metres of ``crs``, a projected coordinate system such as
    "EPSG:32633", or of a plane of their own.
    """

    cell_size: float = 3.0
    shape: tuple[int, int] = (100, 100)
    origin: tuple[float, float] = (0.0, 0.0)
    crs: str | None = None

    def __post_init__(self) -> None:
        cell_size = checks.number("cell_size", self.cell_size, above=0)
        if len(self.shape) != 2 or len(self.origin) != 2:
            raise ConfigurationError("a grid's shape is (rows, columns) and its origin is (x, y)")
        rows, columns = (checks.whole("each of shape", n, least=1) for n in self.shape)
        x, y = (checks.number("each of origin", v) for v in self.origin)
        if rows * columns > _MOST_CELLS:
            raise ConfigurationError(
                f"a grid of {rows} x {columns} cells is too large; take a larger cell_size"
            )
        object.__setattr__(self, "cell_size", cell_size)
        object.__setattr__(self, "shape", (rows, columns))
        object.__setattr__(self, "origin", (x, y))

    @classmethod
    def covering(
        cls, xy: ArrayLike, cell_size: float, margin: float = 0.0, crs: str | None = None
    ) -> "Grid":
        """The smallest grid that holds all points ``xy`` with ``margin`` metres around them."""
        points = checks.points("xy", xy, columns=2).reshape(-1, 2)
        if len(points) == 0:
            raise ConfigurationError("no points to lay a grid over")
        size = checks.number("cell_size", cell_size, above=0)
        low = points.min(axis=0) - margin
        columns, rows = np.maximum(1, np.ceil((points.max(axis=0) + margin - low) / size))
        return cls(size, (int(rows), int(columns)), (float(low[0]), float(low[1])), crs)

    @property
    def cells(self) -> int:
        """Number of cells, M."""
        return self.shape[0] * self.shape[1]

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """(west, east, south, north) in metres, as ``imshow`` takes it."""
        (x, y), (rows, columns) = self.origin, self.shape
        return x, x + columns * self.cell_size, y, y + rows * self.cell_size

    @property
    def north_up(self) -> tuple[float, float, float, float, float, float]:
        """From (column, row) of an image with north on top to (x, y): an affine map's numbers."""
        west, _, _, north = self.extent
        return self.cell_size, 0.0, west, 0.0, -self.cell_size, north

    @cached_property
    def x(self) -> Floats:
        """East coordinate of each column's centre, (columns,), in metres."""
        return self.origin[0] + (np.arange(self.shape[1], dtype=np.float64) + 0.5) * self.cell_size

    @cached_property
    def y(self) -> Floats:
        """North coordinate of each row's centre, (rows,), in metres."""
        return self.origin[1] + (np.arange(self.shape[0], dtype=np.float64) + 0.5) * self.cell_size

    @cached_property
    def centres(self) -> Floats:
        """c_m: the centre of every cell, (M, 2), in metres."""
        x, y = np.meshgrid(self.x, self.y)
        return np.column_stack([x.ravel(), y.ravel()])

    @property
    def frame(self) -> Frame:
        """The grid as the kernels take it."""
        (x, y), (rows, columns) = self.origin, self.shape
        return Frame(x=x, y=y, per_metre=1.0 / self.cell_size, rows=rows, columns=columns)

    def contains(self, xy: ArrayLike) -> Bools:
        """Whether each point lies on the (closed) grid."""
        points = checks.points("xy", xy, columns=2)
        west, east, south, north = self.extent
        x, y = points[..., 0], points[..., 1]
        return (x >= west) & (x <= east) & (y >= south) & (y <= north)

    def cell_of(self, xy: ArrayLike) -> Ints:
        """The cell of each point; −1 for points off the grid."""
        points = checks.points("xy", xy, columns=2)
        steps = np.floor((points - self.origin) / self.cell_size).astype(np.int64)
        rows, columns = self.shape
        column = np.minimum(steps[..., 0], columns - 1)
        row = np.minimum(steps[..., 1], rows - 1)
        return np.where(self.contains(points), row * columns + column, -1)

    def between_centres(self, xy: ArrayLike) -> tuple[Ints, Floats]:
        """Bilinear interpolation: the four cells around each point and their shares, (J, 4).

        Beyond the outermost centres a point counts as on the line that joins them.
        """
        rows, columns = self.shape
        place = (checks.points("xy", xy, columns=2) - self.origin) / self.cell_size - 0.5
        place = np.clip(place, 0.0, [columns - 1.0, rows - 1.0])
        low = np.minimum(np.floor(place).astype(np.int64), [max(columns - 2, 0), max(rows - 2, 0)])
        part = place - low
        cells = np.empty((len(place), 4), dtype=np.int64)
        shares = np.empty((len(place), 4))
        for corner, (north, east) in enumerate(_CORNERS):
            row = np.minimum(low[:, 1] + north, rows - 1)
            cells[:, corner] = row * columns + np.minimum(low[:, 0] + east, columns - 1)
            along_y = part[:, 1] if north else 1 - part[:, 1]
            shares[:, corner] = along_y * (part[:, 0] if east else 1 - part[:, 0])
        return cells, shares


def offsets_of(counts: Ints) -> Ints:
    """Where each group starts when groups of these sizes lie one after another, (N + 1,)."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def paired(user_xyz: ArrayLike, bs_xyz: ArrayLike) -> LinkEnds:
    """Both ends of each link as contiguous (J, 3) arrays; a single end serves all links."""
    user = checks.points("user_xyz", user_xyz)
    bs = checks.points("bs_xyz", bs_xyz)
    try:
        user, bs = np.broadcast_arrays(np.atleast_2d(user), np.atleast_2d(bs))
    except ValueError:
        raise ConfigurationError(
            f"user_xyz {user.shape} and bs_xyz {bs.shape} do not pair up link by link"
        ) from None
    if user.ndim != 2:
        raise ConfigurationError(f"links must form one list, shape (J, 3), not {user.shape}")
    return LinkEnds(user=np.ascontiguousarray(user), bs=np.ascontiguousarray(bs))
