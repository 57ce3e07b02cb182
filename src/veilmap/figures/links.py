"""Links: one over obstacles from the side, and all of a file on the ground."""

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from veilmap.figures.content import MeasuredGround, SideView
from veilmap.figures.style import (
    ATTACKER,
    COLOURS,
    EAST,
    GAIN,
    NORTH,
    SMALL,
    USER,
    colour_bar,
    draw,
    label,
)

# More dots than this hide each other, and make files slow to open.
_MOST_DOTS = 20_000
_MOST_NAMES = 15
_MOST_BINS = 60


@draw.register
def _(survey: MeasuredGround) -> Figure:
    figure = Figure(figsize=(9.0, 4.4), layout="constrained")
    ground, histogram = figure.subplots(1, 2, width_ratios=(1.6, 1))
    every = -(-len(survey.gain_db) // _MOST_DOTS)
    shown = np.arange(0, len(survey.gain_db), every)
    shown = shown[np.argsort(survey.gain_db[shown])]  # a place's strongest link on top
    looks = {"s": 5, "cmap": GAIN, "linewidths": 0, "rasterized": True}
    dots = ground.scatter(*survey.user_xy[shown].T, c=survey.gain_db[shown], **looks)
    ground.plot(*survey.bs_xy.T, "^", ms=7, mfc="white", mec="black", ls="", label="base station")
    for place, names in _names(survey).items():
        ground.annotate(
            ", ".join(names), place, xytext=(0, 7), textcoords="offset points", ha="center",
            fontsize=SMALL - 2, bbox={"facecolor": "white", "alpha": 0.7, "lw": 0, "pad": 0.5},
        )  # fmt: skip
    ground.set_aspect("equal", adjustable="datalim")
    ground.ticklabel_format(useOffset=False, style="plain")
    ground.tick_params(axis="x", labelrotation=30)
    label(ground, survey.title, EAST, NORTH)
    ground.legend(fontsize=SMALL, loc="best")
    colour_bar(dots, ground, "gain (dB)", shrink=0.9)
    histogram.hist(survey.gain_db, bins=_bins(survey.gain_db), color=USER)
    label(histogram, x="gain (dB)", y="links")
    histogram.spines[["top", "right"]].set_visible(False)
    return figure


def _names(survey: MeasuredGround) -> dict[tuple[float, float], list[str]]:
    """The base stations at each place, if they are few enough to read."""
    found: dict[tuple[float, float], list[str]] = {}
    for name, (x, y) in zip(survey.bs, survey.bs_xy.tolist(), strict=True):
        found.setdefault((x, y), []).append(name)
    return found if len(found) <= _MOST_NAMES else {}


def _bins(gain_db: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bins of whole dB about whole dB: many receivers round, and other bins show teeth."""
    low, high = np.floor(gain_db.min() + 0.5), np.floor(gain_db.max() + 0.5)
    width = max(1.0, np.ceil((high - low + 1) / _MOST_BINS))
    return np.arange(low - 0.5, high + width, width)


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
    label(above, picture.title, y="height (m)")
    above.legend(fontsize=SMALL, loc="upper left", ncols=3, frameon=False)
    below.step(picture.distance, picture.clear, where="mid", color=COLOURS[2], label="ψ(z − h)")
    below.plot(
        picture.distance, np.cumprod(picture.clear), "--", color="black", lw=1.2,
        label="product from the user on",
    )  # fmt: skip
    below.set_ylim(-0.05, 1.1)
    label(below, x="distance from the user along the ground (m)", y="share clear")
    below.legend(fontsize=SMALL, loc="center right", frameon=False)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    return figure
