"""The learned map on paper, beside the true one where it is known."""

import numpy as np
from numpy.typing import NDArray

from veilmap import figures, layers
from veilmap.geometry.grid import Grid
from veilmap.layers.layer import centres
from veilmap.reports import html
from veilmap.reports.html import Html
from veilmap.runs.opened import OpenRun
from veilmap.scenes.scene import Scene

_ALTITUDE = 1.5


def nearest_to_middle(grid: Grid, stations: NDArray[np.float64]) -> int:
    """Which of the base stations, (B, 3), is nearest to the middle of the area."""
    west, east, south, north = grid.extent
    middle = np.array([(west + east) / 2, (south + north) / 2])
    return int(np.argmin(np.linalg.norm(stations[:, :2] - middle, axis=1)))


def true_gain(scene: Scene, bs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Gain of one base station over the ground of a city, (rows, columns), outdoors."""
    values = scene.gain(centres(scene.grid, _ALTITUDE), bs)
    return outdoors(scene, values.reshape(scene.grid.shape))


def outdoors(
    scene: Scene, values: NDArray[np.float64], grid: Grid | None = None
) -> NDArray[np.float64]:
    """Values over a city's ground, on its own or another grid; NaN inside buildings.

    Nobody measures there.
    """
    heights = scene.heights if grid is None or grid == scene.grid else scene.heights_on(grid)
    return np.where(heights == 0, values, np.nan)


def section(run: OpenRun) -> list[Html]:
    """Heights, and gain from the base station in the middle."""
    radio_map, scene = run.radio_map(), run.scene
    shown = [_heights(radio_map.grid, radio_map.heights, "learned obstacle", "virtual obstacles")]
    if scene is not None:
        shown.append(_heights(radio_map.grid, scene.heights, "true building", "buildings"))
    stations, ids = run.stations
    if len(stations) == 0:
        said = html.paragraph("This run was not told where base stations are: no gain is shown.")
        return [html.pictures([*shown, said])]
    number = nearest_to_middle(radio_map.grid, stations)
    bs, name = stations[number], ids[number]
    gain = layers.gain(radio_map, bs, _ALTITUDE, station=name).values
    if scene is None:
        shown.append(_gain(radio_map.grid, gain, bs, name, "predicted"))
    else:
        shown += _against_truth(scene, outdoors(scene, gain), bs, name)
    return [html.pictures(shown)]


def _heights(grid: Grid, values: NDArray[np.float64], which: str, things: str) -> Html:
    title = f"{which.split(maxsplit=1)[0]} heights"
    seen = f"Map of the {which} heights, up to {values.max():.0f} m"
    picture = figures.maps.heights(grid, values, title)
    return html.picture(figures.png(picture), f"{title.capitalize()} of the {things}", seen)


def _gain(
    grid: Grid,
    values: NDArray[np.float64],
    bs: NDArray[np.float64],
    name: str,
    which: str,
    limits: tuple[float | None, float | None] = (None, None),
) -> Html:
    picture = figures.maps.gain(grid, values, bs, f"{which} gain at 1.5 m", limits)
    words = f"gain from base station {name}"
    return html.picture(
        figures.png(picture),
        f"{which.capitalize()} {words}, the one nearest to the middle, at 1.5 m",
        f"Map of the {which} {words}, {np.nanmin(values):.0f} to {np.nanmax(values):.0f} dB",
    )


def _against_truth(
    scene: Scene, gain: NDArray[np.float64], bs: NDArray[np.float64], name: str
) -> list[Html]:
    """Predicted and true gain in the same colours, and how far they are apart."""
    grid, truth = scene.grid, true_gain(scene, bs)
    limits = (float(np.nanmin([gain, truth])), float(np.nanmax([gain, truth])))
    size = float(np.nanmean(np.abs(gain - truth)))
    error = html.picture(
        figures.png(figures.maps.gain_error(grid, gain - truth, bs, "error of the gain")),
        f"Predicted less true gain from base station {name}: {size:.1f} dB apart on average"
        " over this ground; white where they agree",
        f"Map of the gain's error from base station {name}, {size:.1f} dB on average",
    )
    both = (("predicted", gain), ("true", truth))
    return [*(_gain(grid, values, bs, name, which, limits) for which, values in both), error]
