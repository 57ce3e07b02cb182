"""Measurements on the ground: users, base stations, and how strong the links are."""

import numpy as np
from matplotlib.figure import Figure

from veilmap.pictures import Survey
from veilmap.plots._style import GAIN, SIZE, SMALL, USER

# More dots than this hide each other, and make files slow to open.
_MOST_DOTS = 20_000
_NAMED = 30
_BINS = 60


def survey_figure(survey: Survey) -> Figure:
    """Users coloured by gain, base stations, and a histogram of gains."""
    figure = Figure(figsize=(9.0, 4.4), layout="constrained")
    ground, histogram = figure.subplots(1, 2, width_ratios=(1.6, 1))
    shown = np.linspace(0, len(survey.gain_db) - 1, min(len(survey.gain_db), _MOST_DOTS)).astype(
        int
    )
    dots = ground.scatter(
        *survey.user_xy[shown].T, c=survey.gain_db[shown], s=5, cmap=GAIN, linewidths=0,
        rasterized=True,
    )  # fmt: skip
    ground.plot(*survey.bs_xy.T, "^", ms=7, mfc="white", mec="black", ls="", label="base station")
    if len(survey.bs) <= _NAMED:
        for name, place in zip(survey.bs, survey.bs_xy, strict=True):
            ground.annotate(
                name, tuple(place), xytext=(0, 6), textcoords="offset points", ha="center",
                fontsize=SMALL - 3,
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
    histogram.hist(survey.gain_db, bins=_BINS, color=USER)
    histogram.set_xlabel("gain (dB)", fontsize=SIZE)
    histogram.set_ylabel("links", fontsize=SIZE)
    histogram.spines[["top", "right"]].set_visible(False)
    for axes in (ground, histogram):
        axes.tick_params(labelsize=SMALL)
    scale.ax.tick_params(labelsize=SMALL)
    return figure
