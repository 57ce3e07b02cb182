"""netCDF after the CF conventions."""

from pathlib import Path

import numpy as np

from veilmap._util import files
from veilmap.export.written import Written
from veilmap.geometry.coordinates import cf_attributes
from veilmap.layers import Layer

# The variable that carries the coordinate system.
_MAPPING = "crs"


def write(layer: Layer, path: Path) -> Written:
    """Write one variable with its coordinates, unit and coordinate system."""
    import xarray

    grid = layer.grid
    attributes = {"units": layer.unit, "long_name": layer.long_name, **layer.details}
    variables = {}
    if grid.crs is not None:
        attributes["grid_mapping"] = _MAPPING
        variables[_MAPPING] = ((), np.int32(0), cf_attributes(grid.crs))
    dataset = xarray.Dataset(
        data_vars={layer.name: (("y", "x"), np.array(layer.values), attributes), **variables},
        coords={
            axis: (axis, centres, {
                "units": "m", "axis": axis.upper(),
                "standard_name": f"projection_{axis}_coordinate",
            })
            for axis, centres in (("y", grid.y), ("x", grid.x))
        },
        attrs={"Conventions": "CF-1.8", "title": layer.long_name, "cell_size": grid.cell_size},
    )  # fmt: skip
    # CF wants coordinates whole: no fill value there.
    fill = {"x": None, "y": None, layer.name: np.nan}
    encoding = {name: {"_FillValue": value} for name, value in fill.items()}
    with files.replacing(path) as temporary:
        dataset.to_netcdf(temporary, engine="scipy", encoding=encoding)
    return Written((path,))
