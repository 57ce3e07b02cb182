"""Figures of an audit: how far attackers are off, what they believe, what it costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from veilmap.figures.style import ATTACKER, COLOURS, MARKERS, SIZE, SMALL, USER, plain
from veilmap.geometry.grid import Grid

_STYLES = ("-", "--", "-.", ":")


def cdf_figure(
    panels: Mapping[str, Mapping[str, NDArray[np.float64]]], title: str, columns: int | None = None
) -> Figure:
    """Share of users found within a distance: a panel per round, a line per attack.

    Panels stand in one row, or ``columns`` in each.
    """
    rows, across = _arranged(len(panels), columns)
    below = rows > 1  # where the legend has room
    size = (3.1 * across + (0.4 if below else 1.8), 3.6 * rows)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, fontsize=SIZE + 1)
    places = _panels(figure, len(panels), columns)
    for axes, (name, errors) in zip(places, panels.items(), strict=True):
        for number, (attack, values) in enumerate(errors.items()):
            ordered = np.maximum(np.sort(values), 0.05)
            share = np.arange(1, len(ordered) + 1) / len(ordered)
            style = _STYLES[number // len(COLOURS) % len(_STYLES)]
            colour = COLOURS[number % len(COLOURS)]
            axes.step(ordered, share, style, color=colour, lw=1.6, where="post", label=attack)
        axes.set_xscale("log")
        axes.set_xlim(0.05, 500)
        axes.set_ylim(0, 1)
        axes.set_title(name, fontsize=SIZE)
        axes.set_xlabel("distance from the truth (m)", fontsize=SIZE)
        axes.grid(alpha=0.3)
        axes.tick_params(labelsize=SMALL)
    for axes in places[::across]:
        axes.set_ylabel("share of users found within", fontsize=SIZE)
    handles, labels = places[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, fontsize=SMALL, ncols=3 if below else 1,
        loc="outside lower center" if below else "outside right upper",
    )  # fmt: skip
    return figure


def posterior_figure(
    grid: Grid,
    heights: NDArray[np.float64],
    beliefs: Sequence[tuple[str, Grid, NDArray[np.floating]]],
    position: NDArray[np.float64],
    title: str,
    columns: int | None = None,
) -> Figure:
    """What an attacker believes about one user over the city: (name, grid, probability) each.

    Panels stand in one row, or ``columns`` in each.
    """
    rows, across = _arranged(len(beliefs), columns)
    figure = Figure(figsize=(3.5 * across + 0.8, 3.9 * rows + 0.4), layout="constrained")
    figure.suptitle(plain(title), fontsize=SIZE + 1)
    row = _panels(figure, len(beliefs), columns)
    shown = None
    for axes, (name, places, probability) in zip(row, beliefs, strict=True):
        axes.imshow(
            np.maximum(heights, 0), origin="lower", extent=grid.extent, cmap="Greys", alpha=0.45
        )
        # Times as probable as if nothing were known; what is less probable is left out.
        gain = np.log10(np.maximum(probability * places.cells, 1e-9))
        shown = axes.imshow(
            np.ma.masked_less(gain, 0), origin="lower", extent=places.extent, cmap="viridis_r",
            vmin=0, vmax=4, interpolation="nearest",
        )  # fmt: skip
        best = places.centres[int(probability.argmax())]
        away = float(np.linalg.norm(best - position))
        axes.set_title(f"{name}:\nmost probable place {away:.0f} m off", fontsize=SIZE)
        axes.plot(*best, "X", color=ATTACKER, markeredgecolor="white", ms=8, label="attacker")
        axes.plot(*position, "o", ms=13, mfc="none", mec=USER, mew=1.8, label="user")
        axes.set_xlim(grid.extent[:2])
        axes.set_ylim(grid.extent[2:])
        axes.set_xlabel("x, east (m)", fontsize=SIZE)
        axes.tick_params(labelsize=SMALL)
    for axes in row[::across]:
        axes.set_ylabel("y, north (m)", fontsize=SIZE)
    row[0].legend(fontsize=SMALL, loc="upper left")
    if shown is not None:
        scale = figure.colorbar(shown, ax=row, shrink=0.85, aspect=20 * rows)
        scale.set_label("probability / that of chance (log10)", size=SIZE)
        scale.ax.tick_params(labelsize=SMALL)
    return figure


def _arranged(count: int, columns: int | None) -> tuple[int, int]:
    """Rows and columns of panels."""
    across = min(count, columns or count)
    return -(-count // across), across


def _panels(figure: Figure, count: int, columns: int | None) -> list[Axes]:
    """Axes of panels that share their heights; places for more are empty."""
    axes = figure.subplots(*_arranged(count, columns), sharey=True, squeeze=False).ravel().tolist()
    for free in axes[count:]:
        free.set_axis_off()
    return axes[:count]


@dataclass(frozen=True)
class TradeoffPoint:
    """One run: its label, map MAE (dB), strongest attack's median error and its 95 % interval."""

    label: str
    mae_db: float
    error_m: float
    low_m: float
    high_m: float


def tradeoff_figure(points: Sequence[TradeoffPoint], prior_m: float, title: str = "") -> Figure:
    """Map error against the strongest attack's error; the prior's error is the ceiling."""
    figure = Figure(figsize=(8.4, 4.4), layout="constrained")
    if title:
        figure.suptitle(plain(title), fontsize=SIZE + 1)
    axes = figure.subplots()
    axes.axhline(prior_m, color="0.5", ls="--", lw=1)
    axes.annotate(
        "guessing the middle of the map", (0.99, prior_m), xycoords=("axes fraction", "data"),
        xytext=(0, 4), textcoords="offset points", ha="right", fontsize=SMALL, color="0.35",
    )  # fmt: skip
    for number, point in enumerate(points):
        bars = [[max(point.error_m - point.low_m, 0)], [max(point.high_m - point.error_m, 0)]]
        axes.errorbar(
            point.mae_db, max(point.error_m, 0.01), yerr=bars, capsize=3, ms=8, ls="",
            marker=MARKERS[number % len(MARKERS)], color=COLOURS[number % len(COLOURS)],
            label=plain(point.label),
        )  # fmt: skip
    figure.legend(fontsize=SMALL, loc="outside right upper")
    axes.set_yscale("log")
    axes.margins(0.1)
    axes.set_xlabel("map MAE on unseen users (dB); left is better", fontsize=SIZE)
    axes.set_ylabel("median error of the strongest attack (m); up is safer", fontsize=SIZE)
    axes.grid(alpha=0.3)
    axes.tick_params(labelsize=SMALL)
    return figure
