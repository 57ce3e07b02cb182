"""Layers of points in GeoPackage files; the only place with pyogrio."""

import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import shapely

from veilmap._util.arrays import Floats
from veilmap._util.extras import require
from veilmap.errors import ConfigurationError, DataError
from veilmap.ingest.tables import RawTable, first_line

_POINT = 0  # shapely's number for points
_NOTHING = -1


@dataclass(frozen=True)
class GeoPackageFile:
    """A layer of points; the points are positions, the other columns as in any table."""

    path: Path
    layer: str | None = None

    @cached_property
    def _layer(self) -> str:
        with _reading(self.path) as (pyogrio, _):
            layers = [str(name) for name, _ in pyogrio.list_layers(self.path)]
        if self.layer is None and len(layers) == 1:
            return layers[0]
        if self.layer in layers:
            return str(self.layer)
        problem = "several layers" if self.layer is None else f"no layer {self.layer!r}"
        raise ConfigurationError(
            f"{self.path} has {problem}; choose layer from {', '.join(layers)}", "layer"
        )

    @cached_property
    def names(self) -> list[str]:
        """The columns' names."""
        layer = self._layer
        with _reading(self.path) as (pyogrio, _):
            info = pyogrio.read_info(self.path, layer=layer)
        return [str(name) for name in info["fields"]]

    def load(self, wanted: Sequence[str], text: Collection[str] = ()) -> RawTable:
        """The ``wanted`` columns and the points."""
        layer = self._layer
        with _reading(self.path) as (pyogrio, caught):
            about, table = pyogrio.raw.read_arrow(self.path, layer=layer, columns=list(wanted))
            table.validate(full=True)  # text may be damaged
        name = about["geometry_name"] or "wkb_geometry"
        points = None
        if name in table.column_names:
            points = self._points(table.column(name))
            table = table.drop_columns([name])
        said = dict.fromkeys(" ".join(str(one.message).split()) for one in caught)
        notes, rows = (f"layer {layer}", *said), np.arange(table.num_rows)
        return RawTable(self.path, table, rows, points=points, crs=about["crs"], notes=notes)

    def _points(self, column: pa.ChunkedArray) -> Floats:
        # Damaged points are no points: their rows are left out as rows without a position.
        geometries = shapely.from_wkb(column.to_numpy(), on_invalid="ignore")
        other = np.flatnonzero(~np.isin(shapely.get_type_id(geometries), (_POINT, _NOTHING)))
        if len(other):
            kind = geometries[other[0]].geom_type
            raise DataError(
                f"{self.path}, layer {self._layer}, row {other[0]}: a {kind}, not a point"
            )
        axes = shapely.get_x, shapely.get_y, shapely.get_z
        return np.column_stack([axis(geometries) for axis in axes])


@contextmanager
def _reading(path: Path) -> Iterator[tuple[Any, list[warnings.WarningMessage]]]:
    """Pyogrio and a list for its warnings; what it raises becomes one line."""
    require("pyogrio", f"{path}: reading GeoPackage files")
    import pyogrio.raw

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield pyogrio, caught
        except (RuntimeError, ValueError, OSError, pa.ArrowException) as error:
            raise DataError(f"{path} cannot be read as GeoPackage: {first_line(error)}") from None
