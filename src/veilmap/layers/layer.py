"""One quantity over the ground: values, unit, grid, and what they depend on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid

Attribute = str | int | float | Sequence[float]


@dataclass(frozen=True, eq=False)
class Layer:
    """One quantity in every cell of a grid, ready for other tools.

    ``values`` are (rows, columns), from south to north as everywhere in a `Grid`; NaN where there
    is no value. ``attributes`` are what they depend on beside the altitude, such as the base
    station. ``categories`` if values are numbers of things, not amounts: there is nothing between
    2 and 3. ``exact`` is the quantity at any points, (n, 3) to (n,); without it a point has its
    cell's value.
    """

    name: str
    values: Floats = field(repr=False)
    unit: str  # "1" for pure numbers
    long_name: str
    grid: Grid
    altitude: float | None = None  # of receivers above ground in metres, if values depend on it
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    categories: bool = False
    exact: Callable[[Floats], Floats] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        values = np.array(checks.floats("values", self.values), order="C")
        if values.shape != self.grid.shape:
            raise ConfigurationError(
                f"values have shape {values.shape}; the grid has {self.grid.shape}"
            )
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    @classmethod
    def of(
        cls,
        name: str,
        exact: Callable[[Floats], Floats],
        unit: str,
        long_name: str,
        grid: Grid,
        altitude: float,
        attributes: Mapping[str, Attribute],
    ) -> "Layer":
        """A quantity that is known at any point, at every cell's centre."""
        values = exact(centres(grid, altitude)).reshape(grid.shape)
        return cls(name, values, unit, long_name, grid, altitude, attributes, exact=exact)

    @property
    def details(self) -> dict[str, Attribute]:
        """All that the values depend on, the receivers' altitude among it."""
        altitude = {} if self.altitude is None else {"altitude_m": self.altitude}
        return altitude | dict(self.attributes)

    def at(self, points: ArrayLike) -> Floats:
        """The values at points, (n,): NaN off the grid.

        ``points`` are (n, 2), taken at the layer's altitude, or (n, 3).
        """
        places = checks.floats("points", points)
        columns = 3 if places.ndim == 2 and places.shape[1] == 3 else 2
        places = checks.points("points", places, columns).reshape(-1, columns)
        cells = self.grid.cell_of(places[:, :2])
        on_grid = cells >= 0
        found = np.full(len(places), np.nan)
        if self.exact is None:
            found[on_grid] = self.values.ravel()[cells[on_grid]]
        elif on_grid.any():
            if columns == 2 and self.altitude is None:
                raise ConfigurationError(f"{self.name} needs points with a height: (n, 3)")
            if columns == 2:
                places = np.column_stack([places, np.full(len(places), self.altitude)])
            found[on_grid] = self.exact(places[on_grid])
        return found


def centres(grid: Grid, altitude: float) -> Floats:
    """Every cell's centre, ``altitude`` metres above ground, (M, 3)."""
    return np.column_stack([grid.centres, np.full(grid.cells, altitude)])
