"""Pictures as figures: curves, maps and side views in one style, fit for print."""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

from veilmap.figures.content import Curves, Line, MapPanel, Maps, Panel, SideView
from veilmap.figures.style import ATTACKER, COLOURS, HEIGHTS, MARKERS, SIZE, SMALL, USER

_FEW = 12  # points that get a marker

# Shapes and colours of estimates on a map; the user's are a ring and blue.
_ESTIMATES = (
    ("X", ATTACKER), ("s", "#999999"), ("^", "#e69f00"), ("v", "#cc79a7"), ("D", "#009e73"),
    ("P", "#000000"), ("*", "#d55e00"),
)  # fmt: skip


@singledispatch
def draw(picture: object) -> Figure:
    """The figure of a picture."""
    raise TypeError(f"no way to draw a {type(picture).__name__}")


@draw.register
def _(picture: Curves) -> Figure:
    count = len(picture.panels)
    width = 5.6 if count == 1 else max(8.0, 2.3 * count + 1)
    figure = Figure(figsize=(width, 3.9), layout="constrained")
    row = figure.subplots(1, count, sharey=picture.share_y, squeeze=False)[0]
    names = list(dict.fromkeys(line.name for panel in picture.panels for line in panel.lines))
    for axes, panel in zip(row, picture.panels, strict=True):
        for line in panel.lines:
            _draw_line(axes, line, names.index(line.name))
        _dress(axes, panel, labelled=axes is row[0] or not picture.share_y)
    handles = {
        label: handle
        for axes in row
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        list(handles.values()), list(handles), fontsize=SMALL, loc="outside lower center",
        ncols=min(len(handles), 2 if max(map(len, handles)) > 25 else 5), frameon=False,
    )  # fmt: skip
    return figure


def _draw_line(axes: Axes, line: Line, number: int) -> None:
    """A line whose colour, marker and dashes each tell it from the others."""
    colour = COLOURS[number % len(COLOURS)]
    mark = line.kind == "dots" or len(set(line.x)) > 1  # a vertical line needs none
    # On long lines some points, other ones on each, so that lines that coincide are seen.
    apart = max(1, len(line.x) // _FEW)
    again = number >= len(COLOURS)  # the colours are used up: hollow markers
    axes.plot(
        line.x, line.y, {"line": "-", "dashed": "--", "dots": ""}[line.kind], color=colour,
        fillstyle="none" if again else "full",
        lw=1.6, ms=4.5, label=line.name, marker=MARKERS[number % len(MARKERS)] if mark else None,
        markevery=(number % apart, apart),
    )  # fmt: skip
    if line.deviation is not None:
        axes.fill_between(
            line.x, line.y - line.deviation, line.y + line.deviation, color=colour, alpha=0.18, lw=0
        )


def _dress(axes: Axes, panel: Panel, labelled: bool) -> None:
    axes.set_title(panel.title, fontsize=SIZE)
    axes.set_xlabel(panel.x_label, fontsize=SIZE)
    if labelled:
        axes.set_ylabel(panel.y_label, fontsize=SIZE)
    if panel.log_x:
        axes.set_xscale("log")
        shown = sorted({float(x) for line in panel.lines for x in line.x})
        if len(shown) <= _FEW and max(shown) <= 1000:
            _tick_at(axes, shown)
    elif all((line.x % 1 == 0).all() for line in panel.lines):  # no round is half
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    if panel.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(numticks=8))
        if np.diff(np.log10(axes.get_ylim())) > 1:  # else minor ticks are all there is
            axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(which="both", labelsize=SMALL)


def _tick_at(axes: Axes, values: Sequence[float]) -> None:
    """Plain numbers where the points are."""
    axes.set_xticks(values)
    axes.set_xticklabels([f"{value:g}" for value in values])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="x", labelrotation=60)


@draw.register
def _(picture: Maps) -> Figure:
    rows, columns = len(picture.rows), max(map(len, picture.rows))
    figure = Figure(figsize=(2.5 * columns + 1, 2.65 * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    panels = [panel for row in picture.rows for panel in row]
    everything = np.concatenate([panel.values.ravel() for panel in panels])
    low, high = picture.limits or (float(everything.min()), float(everything.max()))
    names = list(dict.fromkeys(name for panel in panels for name in panel.estimates))
    for axes, panel in zip(grid.flat, panels, strict=False):
        shown = axes.imshow(
            panel.values, origin="lower", extent=picture.grid.extent, cmap=HEIGHTS,
            vmin=low, vmax=high, interpolation="nearest",
        )  # fmt: skip
        _mark(axes, panel, names)
    for axes in grid[-1]:
        axes.set_xlabel("x, east (m)", fontsize=SIZE)
    for axes in grid[:, 0]:
        axes.set_ylabel("y, north (m)", fontsize=SIZE)
    scale = figure.colorbar(shown, ax=list(grid.flat), shrink=0.8, aspect=20 * rows)
    scale.set_label(picture.scale, size=SIZE)
    scale.ax.tick_params(labelsize=SMALL)
    _explain_marks(figure, list(grid.flat), len(panels))
    return figure


def _mark(axes: Axes, panel: MapPanel, names: Sequence[str]) -> None:
    """The user, and every estimate in a colour and shape of its own."""
    axes.set_title(panel.title, fontsize=SIZE, pad=8)  # room for marks on the edge
    axes.tick_params(labelsize=SMALL)
    if panel.user is not None:
        ring: dict[str, Any] = {"ms": 11, "mfc": "none", "ls": "", "clip_on": False}
        axes.plot(*panel.user, "o", mec="white", mew=3, **ring)
        axes.plot(*panel.user, "o", mec=USER, mew=1.6, label="user", **ring)
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


@draw.register
def _(picture: SideView) -> Figure:
    figure = Figure(figsize=(8.0, 4.8), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.4, 1))
    blocks = picture.obstacles >= picture.link
    for which, colour, name in ((~blocks, "0.72", "obstacle, clear"), (blocks, ATTACKER, "blocks")):
        above.bar(
            picture.distance[which], picture.obstacles[which], picture.width[which], color=colour,
            edgecolor="white", linewidth=0.4, label=f"h: {name}",
            hatch="///" if name == "blocks" else None,
        )  # fmt: skip
    (x0, y0), (x1, y1) = picture.ends
    above.plot([x0, x1], [y0, y1], color=USER, lw=1.2)
    above.plot(picture.distance, picture.link, ".", color=USER, ms=4, label="z: link over the cell")
    above.plot(x0, y0, "o", color="black", ms=7)
    above.annotate("user", (x0, y0), xytext=(6, 8), textcoords="offset points", fontsize=SMALL)
    above.plot(x1, y1, "^", color="black", ms=9)
    above.annotate(
        "base station", (x1, y1), xytext=(-6, 7), textcoords="offset points", fontsize=SMALL,
        ha="right",
    )  # fmt: skip
    above.set_ylim(0, 1.35 * max(y1, float(picture.link.max())))
    above.set_ylabel("height (m)", fontsize=SIZE)
    above.set_title(picture.title, fontsize=SIZE)
    above.legend(fontsize=SMALL, loc="upper left", ncols=3, frameon=False)
    below.step(picture.distance, picture.clear, where="mid", color=COLOURS[2], label="ψ(z − h)")
    below.plot(
        picture.distance, np.cumprod(picture.clear), "--", color="black", lw=1.2,
        label="product from the user on",
    )  # fmt: skip
    below.set_ylim(-0.05, 1.1)
    below.set_xlabel("distance from the user along the ground (m)", fontsize=SIZE)
    below.set_ylabel("share clear", fontsize=SIZE)
    below.legend(fontsize=SMALL, loc="center right", frameon=False)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=SMALL)
    return figure
