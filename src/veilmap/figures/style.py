"""What all figures share: sizes, colours that colour-blind readers can tell apart, saving."""

from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from veilmap._util import files
from veilmap.geometry.grid import Grid

SIZE = 9
SMALL = 8
HEIGHTS = "cividis"
GAIN = "viridis"
ERROR = "PuOr_r"
ATTACKER = "#d55e00"
USER = "#0072b2"

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#000000", "#d55e00", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


_DPI = 150


def save(figure: Figure, path: Path) -> Path:
    """Write a figure whole or not at all."""
    with files.replacing(path) as temporary:
        figure.savefig(temporary, dpi=_DPI, format=path.suffix.lstrip("."))
    return path


def png(figure: Figure) -> bytes:
    """A figure as the bytes of a file."""
    stream = BytesIO()
    figure.savefig(stream, dpi=_DPI, format="png")
    return stream.getvalue()


def plain(text: str) -> str:
    """Other people's text, such as an id: its dollars are no formula."""
    return text.replace("$", r"\$")


def image(
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
    axes.set_xlabel("x, east (m)", fontsize=SIZE)
    axes.set_ylabel("y, north (m)", fontsize=SIZE)
    axes.tick_params(labelsize=SMALL)
    scale = axes.figure.colorbar(image, ax=axes, shrink=0.9)
    scale.set_label(label, size=SIZE)
    scale.ax.tick_params(labelsize=SMALL)


def station(axes: Axes, bs_xyz: NDArray[np.float64]) -> None:
    """A base station's mark."""
    axes.plot(
        *bs_xyz[:2], marker="^", markersize=9, markerfacecolor="white", markeredgecolor="black"
    )
    axes.annotate(
        f"base station, {bs_xyz[2]:g} m up", (bs_xyz[0], bs_xyz[1]), xytext=(0, 9),
        textcoords="offset points", ha="center", fontsize=SMALL,
        bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "alpha": 0.8, "linewidth": 0},
    )  # fmt: skip
