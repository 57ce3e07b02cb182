"""Results as figures: axes in metres, colour scales that colour-blind readers can tell apart."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from veilmap import _files
from veilmap.geometry import Grid

_SIZE = 9
_SMALL = 8
_HEIGHTS = "cividis"
_GAIN = "viridis"
_ERROR = "PuOr_r"


def save(figure: Figure, path: Path) -> Path:
    """Write a figure whole or not at all."""
    with _files.replacing(path) as temporary:
        figure.savefig(temporary, dpi=150, format=path.suffix.lstrip("."))
    return path


def heights_figure(grid: Grid, heights: NDArray[np.float64], title: str) -> Figure:
    """Obstacle heights over the ground; what lies below ground is shown as open ground."""
    figure, axes = _map_figure(title)
    _image(axes, grid, np.maximum(heights, 0), "obstacle height (m)", _HEIGHTS, (0, 130))
    return figure


def gain_figure(
    grid: Grid, gain: NDArray[np.float64], bs_xyz: NDArray[np.float64], title: str
) -> Figure:
    """Gain from one base station to every place on the ground."""
    figure, axes = _map_figure(title)
    _image(axes, grid, gain, "gain (dB)", _GAIN)
    _station(axes, bs_xyz)
    return figure


def error_figure(
    grid: Grid, error: NDArray[np.float64], bs_xyz: NDArray[np.float64], title: str
) -> Figure:
    """Predicted minus true gain; white where both agree."""
    figure, axes = _map_figure(title)
    limit = max(1.0, float(np.percentile(np.abs(error[np.isfinite(error)]), 99)))
    _image(axes, grid, error, "predicted − true gain (dB)", _ERROR, (-limit, limit))
    _station(axes, bs_xyz)
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
        left.set_title(f"{name} obstacles", fontsize=_SIZE)
        right.set_title(f"{name} gain", fontsize=_SIZE)
        _image(left, grid, np.maximum(heights[row], 0), "height (m)", _HEIGHTS, (0, 130))
        _image(right, grid, gains[row], "gain (dB)", _GAIN, (low, high))
        _station(right, bs_xyz)
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
    figure.suptitle(title, fontsize=_SIZE + 1)
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (name, upload, estimate) in zip(row, panels, strict=True):
        size = np.abs(upload).reshape(grid.shape)
        away = float(np.linalg.norm(estimate - position))
        axes.set_title(f"{name}\nattacker {away:.0f} m away", fontsize=_SIZE)
        _image(axes, grid, np.sqrt(size), "√|gradient| (dB per √m)", "cividis")
        axes.plot(*position, "o", color="white", markeredgecolor="black", label="user")
        axes.plot(*estimate, "X", color="#d55e00", markeredgecolor="white", ms=9, label="attacker")
        axes.label_outer()
    row[0].legend(fontsize=_SMALL, loc="upper left")
    return figure


def _map_figure(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5.2, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=_SIZE)
    return figure, axes


def _image(
    axes: Axes,
    grid: Grid,
    values: NDArray[np.float64],
    label: str,
    colours: str,
    limits: tuple[float | None, float | None] = (None, None),
) -> None:
    """An image over the ground, north up, with a labelled scale."""
    image = axes.imshow(
        values,
        origin="lower",
        extent=grid.extent,
        cmap=colours,
        vmin=limits[0],
        vmax=limits[1],
        interpolation="nearest",
    )
    axes.set_facecolor("0.8")  # no value: inside a building
    axes.set_xlabel("x, east (m)", fontsize=_SIZE)
    axes.set_ylabel("y, north (m)", fontsize=_SIZE)
    axes.tick_params(labelsize=_SMALL)
    scale = axes.figure.colorbar(image, ax=axes, shrink=0.9)
    scale.set_label(label, size=_SIZE)
    scale.ax.tick_params(labelsize=_SMALL)


def _station(axes: Axes, bs_xyz: NDArray[np.float64]) -> None:
    axes.plot(
        *bs_xyz[:2], marker="^", markersize=9, markerfacecolor="white", markeredgecolor="black"
    )
    axes.annotate(
        f"base station, {bs_xyz[2]:g} m up", (bs_xyz[0], bs_xyz[1]), xytext=(0, 9),
        textcoords="offset points", ha="center", fontsize=_SMALL,
        bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "alpha": 0.8, "linewidth": 0},
    )  # fmt: skip
