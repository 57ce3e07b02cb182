"""Results as figures: axes in metres, colour scales that colour-blind readers can tell apart."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from veilmap.figures.style import ATTACKER, ERROR, GAIN, HEIGHTS, SIZE, SMALL, image, station
from veilmap.geometry.grid import Grid


def heights_figure(grid: Grid, heights: NDArray[np.float64], title: str) -> Figure:
    """Obstacle heights over the ground; what lies below ground is shown as open ground."""
    figure, axes = _map_figure(title)
    image(axes, grid, np.maximum(heights, 0), "obstacle height (m)", HEIGHTS, (0, 130))
    return figure


def gain_figure(
    grid: Grid,
    gain: NDArray[np.float64],
    bs_xyz: NDArray[np.float64],
    title: str,
    limits: tuple[float | None, float | None] = (None, None),
) -> Figure:
    """Gain from one base station to every place on the ground; ``limits`` are the colours'."""
    figure, axes = _map_figure(title)
    image(axes, grid, gain, "gain (dB)", GAIN, limits)
    station(axes, bs_xyz)
    return figure


def error_figure(
    grid: Grid, error: NDArray[np.float64], bs_xyz: NDArray[np.float64], title: str
) -> Figure:
    """Predicted minus true gain; white where both agree."""
    figure, axes = _map_figure(title)
    limit = max(1.0, float(np.percentile(np.abs(error[np.isfinite(error)]), 99)))
    image(axes, grid, error, "predicted − true gain (dB)", ERROR, (-limit, limit))
    station(axes, bs_xyz)
    return figure


def overview(
    grid: Grid,
    heights: Sequence[NDArray[np.float64]],
    gains: Sequence[NDArray[np.float64]],
    bs_xyz: NDArray[np.float64],
) -> Figure:
    """True above learned: heights on the left, gain from one base station on the right."""
    figure = Figure(figsize=(8.4, 7.2), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    low, high = (float(f([f(gain) for gain in gains])) for f in (np.nanmin, np.nanmax))
    for row, name in enumerate(("true", "learned")):
        left, right = panels[row]
        left.set_title(f"{name} obstacles", fontsize=SIZE)
        right.set_title(f"{name} gain", fontsize=SIZE)
        image(left, grid, np.maximum(heights[row], 0), "height (m)", HEIGHTS, (0, 130))
        image(right, grid, gains[row], "gain (dB)", GAIN, (low, high))
        station(right, bs_xyz)
    for axes in panels.flat:
        axes.label_outer()
    return figure


def uploads_figure(
    grid: Grid,
    panels: Sequence[tuple[str, NDArray, NDArray[np.float64]]],
    position: NDArray[np.float64],
    title: str,
) -> Figure:
    """Gradient magnitudes as the server sees them: (name, upload, attacker's estimate) each."""
    figure = Figure(figsize=(4.2 * len(panels), 4.0), layout="constrained")
    figure.suptitle(title, fontsize=SIZE + 1)
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (name, upload, estimate) in zip(row, panels, strict=True):
        size = np.abs(upload).reshape(grid.shape)
        away = float(np.linalg.norm(estimate - position))
        axes.set_title(f"{name}\nattacker {away:.0f} m away", fontsize=SIZE)
        image(axes, grid, np.sqrt(size), "√|gradient| (dB per √m)", "cividis")
        axes.plot(*position, "o", color="white", markeredgecolor="black", label="user")
        axes.plot(*estimate, "X", color=ATTACKER, markeredgecolor="white", ms=9, label="attacker")
        axes.label_outer()
    row[0].legend(fontsize=SMALL, loc="upper left")
    return figure


def _map_figure(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5.2, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=SIZE)
    return figure, axes
