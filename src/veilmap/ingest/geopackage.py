"""Layers of points in GeoPackage files; the only place with pyogrio."""

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import shapely
from numpy.typing import NDArray

from veilmap.errors import ConfigurationError, DataError, MissingExtraError
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
        with _Reading(self.path) as pyogrio:
            layers = [str(name) for name, _ in pyogrio.list_layers(self.path)]
        if self.layer is not None and self.layer not in layers:
            raise ConfigurationError(
                f"{self.path} has no layer {self.layer!r}; it has {', '.join(layers)}", "layer"
            )
        if self.layer is None and len(layers) != 1:
            raise ConfigurationError(
                f"{self.path} has {len(layers)} layers ({', '.join(layers)});"
                " choose one with layer",
                "layer",
            )
        return self.layer or layers[0]

    @cached_property
    def names(self) -> list[str]:
        """The columns' names."""
        with _Reading(self.path) as pyogrio:
            info = pyogrio.read_info(self.path, layer=self._layer)
        return [str(name) for name in info["fields"]]

    def load(self, wanted: Sequence[str], text: Collection[str] = ()) -> RawTable:
        """The ``wanted`` columns and the points."""
        reading = _Reading(self.path)
        with reading as pyogrio:
            about, table = pyogrio.raw.read_arrow(
                self.path, layer=self._layer, columns=list(wanted)
            )
            table.validate(full=True)  # text may be damaged
        name = about["geometry_name"] or "wkb_geometry"
        points = None
        if name in table.column_names:
            points = self._points(table.column(name))
            table = table.drop_columns([name])
        notes = (f"layer {self._layer}", *reading.warned)
        return RawTable(
            self.path, table, np.arange(table.num_rows), points=points, crs=about["crs"],
            notes=notes,
        )  # fmt: skip

    def _points(self, column: pa.ChunkedArray) -> NDArray[np.float64]:
        # Damaged points are no points: their rows are left out as rows without a position.
        geometries = shapely.from_wkb(column.to_numpy(), on_invalid="ignore")
        kinds = shapely.get_type_id(geometries)
        other = np.flatnonzero((kinds != _POINT) & (kinds != _NOTHING))
        if len(other):
            kind = geometries[other[0]].geom_type
            raise DataError(
                f"{self.path}, layer {self._layer}, row {other[0]}: a {kind}, not a point"
            )
        return np.column_stack(
            [get(geometries) for get in (shapely.get_x, shapely.get_y, shapely.get_z)]
        )


class _Reading:
    """pyogrio for a block: complaints become one line, warnings are kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warned: tuple[str, ...] = ()
        self._catching = warnings.catch_warnings(record=True)

    def __enter__(self) -> Any:
        self._caught = self._catching.__enter__()
        warnings.simplefilter("always")
        try:
            import pyogrio
            import pyogrio.raw
        except ImportError:
            self._catching.__exit__(None, None, None)
            raise MissingExtraError(
                f"{self.path}: GeoPackage files need pyogrio: pip install 'veilmap[geo]'", "geo"
            ) from None
        return pyogrio

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._catching.__exit__(kind, error, trace)
        said = (" ".join(str(one.message).split()) for one in self._caught or ())
        self.warned = tuple(dict.fromkeys(said))
        if isinstance(error, RuntimeError | ValueError | OSError | pa.ArrowException):
            raise DataError(
                f"{self.path} cannot be read as GeoPackage: {first_line(error)}"
            ) from None
