"""The learned map on paper, beside the true one where it is known."""

import numpy as np
from numpy.typing import NDArray

from veilmap import figures, layers
from veilmap.geometry.grid import Grid
from veilmap.layers.predictions import centres
from veilmap.reports import html
from veilmap.reports.html import Html
from veilmap.runs.opened import OpenRun
from veilmap.scenes.scene import Scene

_ALTITUDE = 1.5

# Nobody measures inside buildings: gain and error maps leave them out.
_INDOORS = np.nan


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
    """Values over a city's ground, on its own or another grid, without those inside buildings."""
    heights = scene.heights if grid is None or grid == scene.grid else scene.heights_on(grid)
    return np.where(heights == 0, values, _INDOORS)


def section(run: OpenRun) -> list[Html]:
    """Heights, and gain from the base station in the middle."""
    radio_map, scene = run.radio_map(), run.scene
    grid = radio_map.grid
    shown = [
        html.picture(
            figures.png(figures.draw(figures.heights(grid, radio_map.heights, "learned heights"))),
            "Learned heights of the virtual obstacles",
            f"Map of the learned obstacle heights, up to {radio_map.heights.max():.0f} m",
        )
    ]
    if scene is not None:
        figure = figures.draw(figures.heights(grid, scene.heights, "true heights"))
        seen = f"Map of the true building heights, up to {scene.heights.max():.0f} m"
        shown.append(html.picture(figures.png(figure), "True heights of the buildings", seen))
    stations, ids = run.stations
    if len(stations) == 0:
        shown.append(
            html.paragraph("This run was not told where base stations are: no gain is shown.")
        )
        return [html.pictures(shown)]
    number = nearest_to_middle(grid, stations)
    bs, name = stations[number], ids[number]
    gain = layers.gain(radio_map, bs, _ALTITUDE, station=name).values
    if scene is None:
        figure = figures.draw(figures.gain(grid, gain, bs, "predicted gain at 1.5 m"))
        shown.append(_gain_picture(figures.png(figure), "Predicted", name, gain))
    else:
        shown += _against_truth(scene, outdoors(scene, gain), bs, name)
    return [html.pictures(shown)]


def _against_truth(
    scene: Scene, gain: NDArray[np.float64], bs: NDArray[np.float64], name: str
) -> list[Html]:
    """Predicted and true gain in the same colours, and how far they are apart."""
    grid, truth = scene.grid, true_gain(scene, bs)
    limits = (float(np.nanmin([gain, truth])), float(np.nanmax([gain, truth])))
    shown = [
        _gain_picture(
            figures.png(
                figures.draw(figures.gain(grid, values, bs, f"{which} gain at 1.5 m", limits))
            ),
            which.capitalize(), name, values,
        )
        for which, values in (("predicted", gain), ("true", truth))
    ]  # fmt: skip
    error = gain - truth
    figure = figures.draw(figures.gain_error(grid, error, bs, "error of the gain"))
    size = float(np.nanmean(np.abs(error)))
    shown.append(
        html.picture(
            figures.png(figure),
            f"Predicted less true gain from base station {name}: {size:.1f} dB apart on average"
            " over this ground; white where they agree",
            f"Map of the gain's error from base station {name}, {size:.1f} dB on average",
        )
    )
    return shown


def _gain_picture(png: bytes, which: str, name: str, gain: NDArray[np.float64]) -> Html:
    low, high = float(np.nanmin(gain)), float(np.nanmax(gain))
    return html.picture(
        png,
        f"{which} gain from base station {name}, the one nearest to the middle, at 1.5 m",
        f"Map of the {which.lower()} gain from base station {name}, {low:.0f} to {high:.0f} dB",
    )
