"""Maps of the ground: heights, gains, gradients, what was measured, what attackers believe."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from veilmap._util.arrays import Array
from veilmap.data.measurements import Measurements
from veilmap.figures import style
from veilmap.figures.content import GroundMap, GroundMaps, MapPanel, Maps, Values
from veilmap.figures.style import EAST, HEIGHTS, NORTH, SIZE, SMALL, colour_bar, draw, label, sheet
from veilmap.geometry.grid import Grid

# More dots than this hide each other, and make files slow to open.
_MOST_DOTS = 20_000
_MOST_NAMES = 15
_LONGEST_NAME = 24  # letters, in a legend
_MOST_BINS = 60

# Shapes and colours of estimates on a map; the user's are a ring and blue.
_ESTIMATES = (
    ("X", style.ATTACKER), ("s", "#999999"), ("^", "#e69f00"), ("v", "#cc79a7"), ("D", "#009e73"),
    ("P", "#000000"), ("*", "#d55e00"),
)  # fmt: skip


def heights(
    grid: Grid, values: Values, title: str, scale: str = "obstacle height (m)"
) -> GroundMap:
    """Obstacle heights over the ground; what lies below ground is shown as open ground."""
    return GroundMap(title, grid, np.maximum(values, 0), scale, HEIGHTS, (0, 130))


def gain(
    grid: Grid,
    values: Values,
    bs_xyz: Values | None,
    title: str,
    limits: tuple[float | None, float | None] = (None, None),
) -> GroundMap:
    """Gain to every place on the ground, from one base station if there is one.

    ``limits`` are the colours'.
    """
    return GroundMap(title, grid, values, "gain (dB)", style.GAIN, limits, station=bs_xyz)


def deviation(grid: Grid, values: Values, bs_xyz: Values, title: str) -> GroundMap:
    """How far readings lie from the gain of one base station."""
    scale = "standard deviation (dB)"
    return GroundMap(title, grid, values, scale, style.UNCERTAINTY, station=bs_xyz)


def counts(grid: Grid, values: Values, bs_xyz: Values, title: str) -> GroundMap:
    """Noisy counts at every point; white where there is none."""
    most = float(np.abs(values).max()) or 1.0
    limits = -most, most
    return GroundMap(title, grid, values, "contributions", style.ERROR, limits, station=bs_xyz)


def servers(grid: Grid, numbers: Values, places: Values, ids: Sequence[str], title: str) -> Figure:
    """Which base station is heard best, by its number in ``places`` and ``ids``."""
    heard, cells, sizes = np.unique(numbers, return_inverse=True, return_counts=True)
    colours = style.categories(len(heard))
    named = np.argsort(-sizes, kind="stable")[:_MOST_NAMES]
    width, height = _sheet_of_one(grid)
    figure = sheet(width, height + 0.1 * len(named) + 0.2)
    axes = figure.subplots()
    limits = (-0.5, len(heard) - 0.5)
    style.over_ground(axes, grid, cells.reshape(grid.shape).astype(float), colours, limits)
    label(axes, title, EAST, NORTH)
    axes.plot(*places[:, :2].T, "^", ms=5, mfc="white", mec="black", ls="")
    west, east, south, north = grid.extent
    axes.set(xlim=(west, east), ylim=(south, north))
    for number in named.tolist():
        name = style.plain(ids[int(heard[number])][:_LONGEST_NAME])
        axes.plot([], [], "s", color=colours(number), mec="black", label=name)
    heading = "base station" + (
        "" if len(named) == len(heard) else f": the {len(named)} with most ground of {len(heard)}"
    )
    looks: dict[str, Any] = {"fontsize": SMALL, "title_fontsize": SMALL, "frameon": False}
    figure.legend(title=heading, loc="outside lower center", ncols=2, **looks)
    return figure


def gain_error(grid: Grid, values: Values, bs_xyz: Values, title: str) -> GroundMap:
    """Predicted minus true gain; white where both agree."""
    most = max(1.0, float(np.percentile(np.abs(values[np.isfinite(values)]), 99)))
    scale = "predicted − true gain (dB)"
    return GroundMap(title, grid, values, scale, style.ERROR, (-most, most), station=bs_xyz)


def overview(
    grid: Grid, true_and_learned: Sequence[Values], gains: Sequence[Values], bs_xyz: Values
) -> GroundMaps:
    """True above learned: heights on the left, gain from one base station on the right."""
    limits = float(np.nanmin(gains)), float(np.nanmax(gains))
    return GroundMaps(
        tuple(
            (
                heights(grid, height, f"{name} obstacles", "height (m)"),
                gain(grid, own, bs_xyz, f"{name} gain", limits),
            )
            for name, height, own in zip(("true", "learned"), true_and_learned, gains, strict=True)
        )
    )


def uploads(
    grid: Grid, received: Sequence[tuple[str, Array, Values]], position: Values, title: str
) -> GroundMaps:
    """Gradient magnitudes as the server sees them: (name, upload, attacker's estimate) each."""
    row = []
    for name, upload, estimate in received:
        away = float(np.linalg.norm(estimate - position))
        words = f"{name}\nattacker {away:.0f} m away"
        values = np.sqrt(np.abs(upload).reshape(grid.shape))
        scale = "√|gradient| (dB per √m)"
        row.append(GroundMap(words, grid, values, scale, HEIGHTS, user=position, estimate=estimate))
    return GroundMaps((tuple(row),), title)


@draw.register
def _(picture: GroundMap) -> Figure:
    return draw(GroundMaps(((picture,),)))


@draw.register
def _(picture: GroundMaps) -> Figure:
    rows, columns = len(picture.rows), len(picture.rows[0])
    size = (4.2 * columns, 3.6 * rows + (0.4 if picture.title else 0))
    alone = rows * columns == 1
    figure = sheet(*(_sheet_of_one(picture.rows[0][0].grid) if alone else size), picture.title)
    places = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes, panel in zip(places.flat, (one for row in picture.rows for one in row), strict=True):
        shown = style.over_ground(axes, panel.grid, panel.values, panel.colours, panel.limits)
        axes.set_facecolor("0.8")  # no value: inside a building
        label(axes, panel.title, EAST, NORTH)
        colour_bar(shown, axes, panel.scale, shrink=0.9)
        if panel.station is not None:
            _mark_station(axes, panel.station)
        if panel.user is not None:
            axes.plot(*panel.user, "o", color="white", markeredgecolor="black", label="user")
        if panel.estimate is not None:
            _mark_attacker(axes, panel.estimate, ms=9)
        axes.label_outer()
    first = places[0, 0]
    if first.get_legend_handles_labels()[0]:
        first.legend(fontsize=SMALL, loc="upper left")
    return figure


def _sheet_of_one(grid: Grid) -> tuple[float, float]:
    """Width and height, in inches, for one map and its colour bar."""
    rows, columns = grid.shape
    return 5.2, 0.8 + 3.6 * min(1.0, max(0.4, rows / columns))


def _mark_attacker(axes: Axes, place: Values, ms: int) -> None:
    axes.plot(*place, "X", color=style.ATTACKER, markeredgecolor="white", ms=ms, label="attacker")


def _mark_station(axes: Axes, bs_xyz: Values) -> None:
    axes.plot(*bs_xyz[:2], "^", markersize=9, markerfacecolor="white", markeredgecolor="black")
    box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "alpha": 0.8, "linewidth": 0}
    words = f"base station, {bs_xyz[2]:g} m up"
    style.note(axes, words, (bs_xyz[0], bs_xyz[1]), (0, 9), ha="center", bbox=box)


def beliefs(
    grid: Grid,
    heights: Values,
    believed: Sequence[tuple[str, Grid, Array]],
    position: Values,
    title: str,
    columns: int | None = None,
) -> Figure:
    """What an attacker believes about a user over the city: (name, grid, probability) each.

    Panels stand in one row, or ``columns`` in each.
    """
    rows, across = style.arranged(len(believed), columns)
    figure = sheet(3.5 * across + 0.8, 3.9 * rows + 0.4, title)
    places = style.panels(figure, len(believed), columns)
    west, east, south, north = grid.extent
    for axes, (name, cells, probability) in zip(places, believed, strict=True):
        city = style.over_ground(axes, grid, np.maximum(heights, 0), "Greys")
        city.set(alpha=0.45, interpolation=None)
        # Times as probable as if nothing were known; what is less probable is left out.
        gained = np.log10(np.maximum(probability * cells.cells, 1e-9))
        shown = style.over_ground(axes, cells, np.ma.masked_less(gained, 0), "viridis_r", (0, 4))
        best = cells.centres[int(probability.argmax())]
        away = float(np.linalg.norm(best - position))
        label(axes, f"{name}:\nmost probable place {away:.0f} m off", EAST)
        _mark_attacker(axes, best, ms=8)
        axes.plot(*position, "o", ms=13, mfc="none", mec=style.USER, mew=1.8, label="user")
        axes.set(xlim=(west, east), ylim=(south, north))
    for axes in places[::across]:
        label(axes, y=NORTH)
    places[0].legend(fontsize=SMALL, loc="upper left")
    words = "probability / that of chance (log10)"
    colour_bar(shown, places, words, shrink=0.85, aspect=20 * rows)
    return figure


@draw.register
def _(picture: Maps) -> Figure:
    rows, columns = len(picture.rows), max(map(len, picture.rows))
    figure = sheet(2.5 * columns + 1, 2.65 * rows + 0.5)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    panels = [panel for row in picture.rows for panel in row]
    everything = np.concatenate([panel.values.ravel() for panel in panels])
    limits = picture.limits or (float(everything.min()), float(everything.max()))
    names = list(dict.fromkeys(name for panel in panels for name in panel.estimates))
    for axes, panel in zip(grid.flat, panels, strict=False):
        shown = style.over_ground(axes, picture.grid, panel.values, HEIGHTS, limits)
        _mark(axes, panel, names)
    for axes in grid[-1]:
        label(axes, x=EAST)
    for axes in grid[:, 0]:
        label(axes, y=NORTH)
    colour_bar(shown, list(grid.flat), picture.scale, shrink=0.8, aspect=20 * rows)
    _explain_marks(figure, list(grid.flat), len(panels))
    return figure


def _mark(axes: Axes, panel: MapPanel, names: Sequence[str]) -> None:
    """The user, and every estimate in a colour and shape of its own."""
    axes.set_title(panel.title, fontsize=SIZE, pad=8)  # room for marks on the edge
    axes.tick_params(labelsize=SMALL)
    if panel.user is not None:
        ring: dict[str, Any] = {"ms": 11, "mfc": "none", "ls": "", "clip_on": False}
        axes.plot(*panel.user, "o", mec="white", mew=3, **ring)
        axes.plot(*panel.user, "o", mec=style.USER, mew=1.6, label="user", **ring)
    for name, place in panel.estimates.items():
        marker, colour = _ESTIMATES[names.index(name) % len(_ESTIMATES)]
        axes.plot(
            *place, marker, color=colour, markeredgecolor="white", ms=9, ls="", label=name,
            clip_on=False,
        )  # fmt: skip


def _explain_marks(figure: Figure, places: list[Axes], used: int) -> None:
    """The legend, where no map is if there is such a place."""
    handles, labels = places[0].get_legend_handles_labels()
    for axes in places[used:]:
        axes.set_axis_off()
    if not handles:
        return
    if len(places) > used:
        places[-1].legend(handles, labels, fontsize=SIZE, loc="center", frameon=False)
    else:
        figure.legend(
            handles, labels, fontsize=SMALL, loc="outside lower center", ncols=2, frameon=False
        )


def survey(data: Measurements, name: str) -> Figure:
    """Who measured where, and what, in a file of that name."""
    gain_db = data.gain_db
    stations, first = np.unique(data.bs, return_index=True)
    bs_xy = data.bs_xyz[first, :2]
    figure = sheet(9.0, 4.4)
    ground, histogram = figure.subplots(1, 2, width_ratios=(1.6, 1))
    every = -(-len(gain_db) // _MOST_DOTS)
    shown = np.arange(0, len(gain_db), every)
    shown = shown[np.argsort(gain_db[shown])]  # a place's strongest link on top
    dots = ground.scatter(
        *data.user_xyz[shown, :2].T, s=5, c=gain_db[shown], cmap=style.GAIN, lw=0, rasterized=True
    )
    ground.plot(*bs_xy.T, "^", ms=7, mfc="white", mec="black", ls="", label="base station")
    for place, names in _names(stations, bs_xy).items():
        box = {"facecolor": "white", "alpha": 0.7, "lw": 0, "pad": 0.5}
        looks = {"ha": "center", "fontsize": SMALL - 2, "bbox": box}
        style.note(ground, ", ".join(names), place, (0, 7), **looks)
    ground.set_aspect("equal", adjustable="datalim")
    ground.ticklabel_format(useOffset=False, style="plain")
    ground.tick_params(axis="x", labelrotation=30)
    title = f"{name}: {len(data):,} links of {len(data.users):,} users"
    label(ground, title, EAST, NORTH)
    ground.legend(fontsize=SMALL, loc="best")
    colour_bar(dots, ground, "gain (dB)", shrink=0.9)
    histogram.hist(gain_db, bins=_bins(gain_db), color=style.USER)
    label(histogram, x="gain (dB)", y="links")
    histogram.spines[["top", "right"]].set_visible(False)
    return figure


def _names(stations: Array, bs_xy: Values) -> dict[tuple[float, float], list[str]]:
    """The base stations at each place, if they are few enough to read."""
    found: dict[tuple[float, float], list[str]] = {}
    for name, (x, y) in zip(stations, bs_xy.tolist(), strict=True):
        found.setdefault((x, y), []).append(str(name))
    return found if len(found) <= _MOST_NAMES else {}


def _bins(gain_db: Values) -> Values:
    """Bins of whole dB about whole dB: many receivers round, and other bins show teeth."""
    low, high = np.floor(gain_db.min() + 0.5), np.floor(gain_db.max() + 0.5)
    width = max(1.0, np.ceil((high - low + 1) / _MOST_BINS))
    return np.arange(low - 0.5, high + width, width)
