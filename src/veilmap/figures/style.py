"""What all figures share: `draw`, sizes, colours that colour-blind readers tell apart, saving."""

from functools import singledispatch
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from veilmap._util import files
from veilmap.geometry.grid import Grid

Figure = matplotlib.figure.Figure

SIZE = 9
SMALL = 8
HEIGHTS = "cividis"
GAIN = "viridis"
ERROR = "PuOr_r"
UNCERTAINTY = "inferno"
EAST, NORTH = "x, east (m)", "y, north (m)"
ATTACKER = "#d55e00"
USER = "#0072b2"

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#000000", "#d55e00", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

_DPI = 150
_LONG_COORDINATES = 1e5  # metres; as numbers they are too wide to stand side by side

# Steps of the golden ratio keep colours of neighbouring numbers apart.
_GOLDEN = 0.618034


@singledispatch
def draw(picture: object) -> Figure:
    """The figure of a picture."""
    raise TypeError(f"no way to draw a {type(picture).__name__}")


@draw.register
def _(picture: Figure) -> Figure:
    return picture


def save(picture: object, path: Path) -> Path:
    """Draw a picture into a file, whole or not at all."""
    with files.replacing(path) as temporary:
        draw(picture).savefig(temporary, dpi=_DPI, format=path.suffix.lstrip("."))
    return path


def png(picture: object) -> bytes:
    """A picture as the bytes of a file."""
    stream = BytesIO()
    draw(picture).savefig(stream, dpi=_DPI, format="png")
    return stream.getvalue()


def plain(text: str) -> str:
    """Other people's text, such as an id: its dollars are no formula."""
    return text.replace("$", r"\$")


def sheet(width: float, height: float, title: str = "") -> Figure:
    """A figure of a size in inches, under a title if there is one."""
    figure = Figure(figsize=(width, height), layout="constrained")
    if title:
        figure.suptitle(plain(title), fontsize=SIZE + 1)
    return figure


def categories(count: int) -> Colormap:
    """Colours of so many things without an order."""
    if count <= len(COLOURS):
        return ListedColormap(COLOURS[:count])
    return ListedColormap(colormaps["turbo"](np.arange(count) * _GOLDEN % 1.0))


def note(axes: Axes, text: str, at: Any, offset: tuple[int, int], **looks: Any) -> None:
    """A small text beside a point, at an offset in points."""
    looks = {"fontsize": SMALL} | looks
    axes.annotate(text, at, xytext=offset, textcoords="offset points", **looks)


def label(axes: Axes, title: str | None = None, x: str | None = None, y: str | None = None) -> None:
    """Titles and ticks in the figures' sizes; None leaves one as it is."""
    for text, put in ((title, axes.set_title), (x, axes.set_xlabel), (y, axes.set_ylabel)):
        if text is not None:
            put(text, fontsize=SIZE)
    axes.tick_params(which="both", labelsize=SMALL)


def over_ground(
    axes: Axes,
    grid: Grid,
    values: NDArray[np.floating],
    colours: str | Colormap,
    limits: tuple[float | None, float | None] = (None, None),
) -> AxesImage:
    """An image over the ground, north up."""
    low, high = limits
    looks: dict[str, Any] = {"cmap": colours, "vmin": low, "vmax": high, "interpolation": "nearest"}
    axes.ticklabel_format(useOffset=False, style="plain")
    if max(map(abs, grid.extent)) >= _LONG_COORDINATES:
        axes.tick_params(axis="x", labelrotation=30)
    return axes.imshow(values, origin="lower", extent=grid.extent, **looks)


def colour_bar(image: ScalarMappable, axes: Axes | list[Axes], text: str, **options: Any) -> None:
    """A labelled colour scale beside one or several axes."""
    first = axes[0] if isinstance(axes, list) else axes
    bar = first.figure.colorbar(image, ax=axes, **options)
    bar.set_label(text, size=SIZE)
    bar.ax.tick_params(labelsize=SMALL)


def arranged(count: int, columns: int | None) -> tuple[int, int]:
    """Rows and columns of panels, ``columns`` in a row or all."""
    across = min(count, columns or count)
    return -(-count // across), across


def panels(figure: Figure, count: int, columns: int | None) -> list[Axes]:
    """Axes of panels that share their heights; places for more are empty."""
    axes = figure.subplots(*arranged(count, columns), sharey=True, squeeze=False).ravel().tolist()
    for free in axes[count:]:
        free.set_axis_off()
    return axes[:count]
