"""Results to figures: `draw` makes a figure of any picture; the only place with matplotlib."""

from veilmap.figures import curves  # it registers what `draw` draws
from veilmap.figures.content import (
    Beliefs,
    ErrorShares,
    GroundMap,
    GroundMaps,
    MeasuredGround,
    TradeoffPlot,
    TradeoffPoint,
)
from veilmap.figures.maps import gain, gain_error, heights, overview, uploads
from veilmap.figures.rasters import save_layer_image, save_layer_legend
from veilmap.figures.style import Figure, draw, png, save

__all__ = [
    "Beliefs",
    "ErrorShares",
    "Figure",
    "GroundMap",
    "GroundMaps",
    "MeasuredGround",
    "TradeoffPlot",
    "TradeoffPoint",
    "curves",
    "draw",
    "gain",
    "gain_error",
    "heights",
    "overview",
    "png",
    "save",
    "save_layer_image",
    "save_layer_legend",
    "uploads",
]
