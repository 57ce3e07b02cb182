"""Results to figures; the only place with matplotlib."""

from veilmap.figures.audits import cdf_figure, posterior_figure, tradeoff_figure
from veilmap.figures.maps import error_figure, gain_figure, heights_figure, overview, uploads_figure
from veilmap.figures.pictures import draw
from veilmap.figures.rasters import save_layer_image, save_layer_legend
from veilmap.figures.style import png, save
from veilmap.figures.surveys import survey_figure

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
