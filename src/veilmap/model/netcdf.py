"""A radio map as a netCDF file: heights with coordinates and units, θ beside them."""

import io
import json
from dataclasses import astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from veilmap._util import files, reading, seals
from veilmap._util.arrays import Floats
from veilmap._util.plain import DAMAGED
from veilmap.data.antennas import Antennas
from veilmap.errors import DataError
from veilmap.geometry.grid import Grid
from veilmap.model.field import Field
from veilmap.model.offsets import Offsets
from veilmap.model.propagation import Law, Propagation

if TYPE_CHECKING:
    import xarray

_FORMAT = 2
_LAWS = [field.name for field in fields(Propagation)][:4]


class MapContent(NamedTuple):
    """All that a radio map consists of."""

    grid: Grid
    heights: Floats
    propagation: Propagation
    sharpness: float
    offsets: Offsets
    field: Field | None
    antennas: Antennas | None


def as_dataset(radio_map: MapContent) -> "xarray.Dataset":
    """The map as an xarray dataset that follows the CF conventions."""
    import xarray

    grid = radio_map.grid
    metres = {"units": "m"}
    units = {"intercept": "dB", "slope": "dB per decade"}
    theta = {
        name: ((), getattr(radio_map.propagation, name), {"units": units[name.split("_")[1]]})
        for name in _LAWS
    }
    return xarray.Dataset(
        data_vars={
            "obstacle_height": (
                ("y", "x"),
                np.array(radio_map.heights),
                metres | {"long_name": "height of virtual obstacles above ground"},
            ),
            **theta,
            **_field_variables(radio_map),
        },
        coords={
            "y": ("y", grid.y, metres | {"standard_name": "projection_y_coordinate"}),
            "x": ("x", grid.x, metres | {"standard_name": "projection_x_coordinate"}),
        },
        attrs={
            "Conventions": "CF-1.8",
            "title": "radio map with virtual obstacles",
            "veilmap_format": _FORMAT,
            "cell_size": grid.cell_size,
            "origin": list(grid.origin),
            "sharpness": radio_map.sharpness,
            **({"crs": grid.crs} if grid.crs else {}),
            **_beyond_the_paper(radio_map),
        },
    )


def _beyond_the_paper(radio_map: MapContent) -> dict[str, str]:
    """Laws between clear and blocked, offsets and antennas, where there are any."""
    found = {}
    if radio_map.propagation.between:
        found["between"] = json.dumps([astuple(law) for law in radio_map.propagation.between])
    if len(radio_map.offsets):
        found["offsets"] = json.dumps([radio_map.offsets.stations, radio_map.offsets.devices])
        found["offset_values"] = json.dumps(radio_map.offsets.values)
    if radio_map.antennas is not None:
        found["antennas"] = radio_map.antennas.as_text()
    return found


def save(radio_map: MapContent, path: Path) -> None:
    """Write the map as netCDF."""
    dataset = as_dataset(radio_map).assign_attrs({seals.NAME: seals.BLANK})
    files.write_bytes(seals.sealed(dataset.to_netcdf(engine="scipy")), path)


def load(path: Path) -> MapContent:
    """Read a map that `save` wrote."""
    import xarray

    content = reading.read_bytes(path)
    if content.startswith(b"CDF"):  # or it is a file of another kind
        seals.check(content, str(path))
    try:
        with xarray.open_dataset(io.BytesIO(content), engine="scipy") as dataset:
            dataset.load()
    except Exception as error:  # the reader raises many kinds for a damaged file
        raise DataError(f"{path} is not a readable netCDF file") from error
    if dataset.attrs.get("veilmap_format") != _FORMAT:
        raise DataError(f"{path} is not a veilmap radio map of format {_FORMAT}")
    try:
        heights = dataset["obstacle_height"].values.astype(np.float64)
        about, shape = dataset.attrs, (heights.shape[0], heights.shape[1])
        grid = Grid(about["cell_size"], shape, tuple(about["origin"]), about.get("crs"))
        laws = {name: float(dataset[name]) for name in _LAWS}
        between = tuple(Law(*law) for law in json.loads(about.get("between", "[]")))
        theta = Propagation(**laws, between=between)
        field = _field(dataset, grid.crs) if "residual_field" in dataset else None
        sharpness = float(about["sharpness"])
        antennas = about.get("antennas")
        known = None if antennas is None else Antennas.from_text(antennas)
        stations, devices = json.loads(about.get("offsets", "[[], []]"))
        offsets = Offsets(stations, devices, tuple(json.loads(about.get("offset_values", "[]"))))
        return MapContent(grid, heights, theta, sharpness, offsets, field, known)
    except DAMAGED as error:
        raise DataError(f"{path} is not a whole radio map: {error}") from error


def _field_variables(radio_map: MapContent) -> dict[str, Any]:
    """What obstacles leave over, if the map knows it."""
    field = radio_map.field
    if field is None:
        return {}
    place = [field.grid.cell_size, *field.grid.origin]
    about = {"units": "dB", "long_name": "what obstacles leave over", "cell_size_and_origin": place}
    metres = {"units": "m", "long_name": "x, y and z of base stations"}
    metres |= {"ids": json.dumps(field.ids)}
    return {
        "residual_field": (("station", "field_y", "field_x"), np.array(field.values), about),
        "field_station": (("station", "xyz"), field.stations, metres),
        **_deviations(field),
    }


def _deviations(field: Field) -> dict[str, Any]:
    """How far readings lie from the map, where it is known."""
    if field.deviations is None:
        return {}
    about = {"units": "dB", "long_name": "standard deviation of a reading around the gain"}
    return {
        "gain_deviation": (("station", "field_y", "field_x"), np.array(field.deviations), about)
    }


def _field(dataset: "xarray.Dataset", crs: str | None) -> Field:
    values = dataset["residual_field"]
    size, x, y = values.attrs["cell_size_and_origin"]
    rows, columns = values.shape[1:]
    grid = Grid(float(size), (rows, columns), (float(x), float(y)), crs)
    stations = dataset["field_station"]
    ids = json.loads(stations.attrs["ids"])
    spread = dataset["gain_deviation"].values if "gain_deviation" in dataset else None
    return Field(grid, stations.values.astype(np.float64), values.values, ids, spread)
