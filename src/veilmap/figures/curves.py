"""Curves: of experiments and trainings, of how far attackers are off, of a link from the side."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

from veilmap.figures import style
from veilmap.figures.content import Curves, Line, Panel, SideView, Values
from veilmap.figures.style import ATTACKER, COLOURS, MARKERS, SMALL, USER, draw, label, sheet

_FEW = 12  # points that get a marker
_STYLES = ("-", "--", "-.", ":")
_NEAREST, _FARTHEST = 0.05, 500  # metres of an error that are shown


@draw.register
def _(picture: Curves) -> Figure:
    count = len(picture.panels)
    width = 5.6 if count == 1 else max(8.0, 2.3 * count + 1)
    figure = sheet(width, 3.9)
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
    label(axes, panel.title, panel.x_label, panel.y_label if labelled else None)
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


def _tick_at(axes: Axes, values: Sequence[float]) -> None:
    """Plain numbers where the points are."""
    axes.set_xticks(values)
    axes.set_xticklabels([f"{value:g}" for value in values])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="x", labelrotation=60)


def error_shares(
    panels: Mapping[str, Mapping[str, Values]], title: str, columns: int | None = None
) -> Figure:
    """Share of users found within a distance: a panel per round, a curve per attack.

    ``panels`` hold errors in metres; they stand in one row, or ``columns`` in each.
    """
    rows, across = style.arranged(len(panels), columns)
    below = rows > 1  # where the legend has room
    figure = sheet(3.1 * across + (0.4 if below else 1.8), 3.6 * rows, title)
    places = style.panels(figure, len(panels), columns)
    for axes, (name, errors) in zip(places, panels.items(), strict=True):
        for number, (attack, values) in enumerate(errors.items()):
            ordered = np.maximum(np.sort(values), _NEAREST)
            share = np.arange(1, len(ordered) + 1) / len(ordered)
            dashes = _STYLES[number // len(COLOURS) % len(_STYLES)]
            colour = COLOURS[number % len(COLOURS)]
            axes.step(ordered, share, dashes, color=colour, lw=1.6, where="post", label=attack)
        axes.set(xscale="log", xlim=(_NEAREST, _FARTHEST), ylim=(0, 1))
        label(axes, name, "distance from the truth (m)")
        axes.grid(alpha=0.3)
    for axes in places[::across]:
        label(axes, y="share of users found within")
    handles, labels = places[0].get_legend_handles_labels()
    where: Any = "outside lower center" if below else "outside right upper"
    figure.legend(handles, labels, fontsize=SMALL, loc=where, ncols=3 if below else 1)
    return figure


def tradeoff(
    runs: Iterable[tuple[str, float, tuple[float, float, float]]], prior_m: float, title: str
) -> Figure:
    """Map error against the strongest attack's error; the prior's error is the ceiling.

    ``runs`` are label, map MAE (dB), and the attack's median error with its 95 % interval (m).
    """
    figure = sheet(8.4, 4.4, title)
    axes = figure.subplots()
    axes.axhline(prior_m, color="0.5", ls="--", lw=1)
    looks: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "ha": "right", "color": "0.35"}
    style.note(axes, "guessing the middle of the map", (0.99, prior_m), (0, 4), **looks)
    for number, (name, mae_db, (error, low, high)) in enumerate(runs):
        bars = [[max(error - low, 0)], [max(high - error, 0)]]
        axes.errorbar(
            mae_db, max(error, 0.01), yerr=bars, capsize=3, ms=8, ls="",
            marker=MARKERS[number % len(MARKERS)], color=COLOURS[number % len(COLOURS)],
            label=style.plain(name),
        )  # fmt: skip
    figure.legend(fontsize=SMALL, loc="outside right upper")
    axes.set_yscale("log")
    axes.margins(0.1)
    better = "median error of the strongest attack (m); up is safer"
    label(axes, x="map MAE on unseen users (dB); left is better", y=better)
    axes.grid(alpha=0.3)
    return figure


@draw.register
def _(picture: SideView) -> Figure:
    figure = sheet(8.0, 4.8)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.4, 1))
    blocks = picture.obstacles >= picture.link
    for which, colour, name in (
        (~blocks, "0.72", "obstacle, clear"),
        (blocks, ATTACKER, "blocks"),
    ):
        above.bar(
            picture.distance[which], picture.obstacles[which], picture.width[which], color=colour,
            edgecolor="white", linewidth=0.4, label=f"h: {name}",
            hatch="///" if name == "blocks" else None,
        )  # fmt: skip
    (x0, y0), (x1, y1) = picture.ends
    above.plot([x0, x1], [y0, y1], color=USER, lw=1.2)
    above.plot(picture.distance, picture.link, ".", color=USER, ms=4, label="z: link over the cell")
    above.plot(x0, y0, "o", color="black", ms=7)
    style.note(above, "user", (x0, y0), (6, 8))
    above.plot(x1, y1, "^", color="black", ms=9)
    style.note(above, "base station", (x1, y1), (-6, 7), ha="right")
    above.set_ylim(0, 1.35 * max(y1, float(picture.link.max())))
    label(above, picture.title, y="height (m)")
    above.legend(fontsize=SMALL, loc="upper left", ncols=3, frameon=False)
    below.step(picture.distance, picture.clear, where="mid", color=COLOURS[2], label="ψ(z − h)")
    product, name = np.cumprod(picture.clear), "product from the user on"
    below.plot(picture.distance, product, "--", color="black", lw=1.2, label=name)
    below.set_ylim(-0.05, 1.1)
    label(below, x="distance from the user along the ground (m)", y="share clear")
    below.legend(fontsize=SMALL, loc="center right", frameon=False)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    return figure
