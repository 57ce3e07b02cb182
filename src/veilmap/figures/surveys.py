"""Measurements on the ground: users, base stations, and how strong the links are."""

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from veilmap.figures.content import Survey
from veilmap.figures.style import GAIN, SIZE, SMALL, USER

# More dots than this hide each other, and make files slow to open.
_MOST_DOTS = 20_000
_MOST_NAMES = 15
_MOST_BINS = 60


def survey_figure(survey: Survey) -> Figure:
    """Users coloured by gain, base stations, and a histogram of gains."""
    figure = Figure(figsize=(9.0, 4.4), layout="constrained")
    ground, histogram = figure.subplots(1, 2, width_ratios=(1.6, 1))
    every = -(-len(survey.gain_db) // _MOST_DOTS)
    shown = np.arange(0, len(survey.gain_db), every)
    shown = shown[np.argsort(survey.gain_db[shown])]  # a place's strongest link on top
    dots = ground.scatter(
        *survey.user_xy[shown].T, c=survey.gain_db[shown], s=5, cmap=GAIN, linewidths=0,
        rasterized=True,
    )  # fmt: skip
    ground.plot(*survey.bs_xy.T, "^", ms=7, mfc="white", mec="black", ls="", label="base station")
    for place, names in _names(survey).items():
        ground.annotate(
            ", ".join(names), place, xytext=(0, 7), textcoords="offset points", ha="center",
            fontsize=SMALL - 2, bbox={"facecolor": "white", "alpha": 0.7, "lw": 0, "pad": 0.5},
        )  # fmt: skip
    ground.set_aspect("equal", adjustable="datalim")
    ground.ticklabel_format(useOffset=False, style="plain")
    ground.tick_params(axis="x", labelrotation=30)
    ground.set_xlabel("x, east (m)", fontsize=SIZE)
    ground.set_ylabel("y, north (m)", fontsize=SIZE)
    ground.set_title(survey.title, fontsize=SIZE)
    ground.legend(fontsize=SMALL, loc="best")
    scale = figure.colorbar(dots, ax=ground, shrink=0.9)
    scale.set_label("gain (dB)", size=SIZE)
    histogram.hist(survey.gain_db, bins=_bins(survey.gain_db), color=USER)
    histogram.set_xlabel("gain (dB)", fontsize=SIZE)
    histogram.set_ylabel("links", fontsize=SIZE)
    histogram.spines[["top", "right"]].set_visible(False)
    for axes in (ground, histogram):
        axes.tick_params(labelsize=SMALL)
    scale.ax.tick_params(labelsize=SMALL)
    return figure


def _names(survey: Survey) -> dict[tuple[float, float], list[str]]:
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
