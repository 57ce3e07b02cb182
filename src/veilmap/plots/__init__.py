"""Results to figures; the only place with matplotlib."""

from veilmap.plots._style import png, save
from veilmap.plots.audits import cdf_figure, posterior_figure, tradeoff_figure
from veilmap.plots.maps import (
    error_figure,
    gain_figure,
    heights_figure,
    overview,
    uploads_figure,
)
from veilmap.plots.pictures import draw
from veilmap.plots.rasters import save_layer_image, save_layer_legend
from veilmap.plots.surveys import survey_figure

__all__ = [
    "cdf_figure",
    "draw",
    "error_figure",
    "gain_figure",
    "heights_figure",
    "overview",
    "png",
    "posterior_figure",
    "save",
    "save_layer_image",
    "save_layer_legend",
    "survey_figure",
    "tradeoff_figure",
    "uploads_figure",
]
