"""Results to figures; the only place with matplotlib."""

from veilmap.plots._style import save
from veilmap.plots.audits import cdf_figure, posterior_figure, tradeoff_figure
from veilmap.plots.maps import (
    error_figure,
    gain_figure,
    heights_figure,
    overview,
    uploads_figure,
)
from veilmap.plots.pictures import draw
from veilmap.plots.surveys import survey_figure

__all__ = [
    "cdf_figure",
    "draw",
    "error_figure",
    "gain_figure",
    "heights_figure",
    "overview",
    "posterior_figure",
    "save",
    "survey_figure",
    "tradeoff_figure",
    "uploads_figure",
]
