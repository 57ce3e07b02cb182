"""Results to figures: `draw` makes a figure of any picture; the only place with matplotlib."""

from veilmap.figures import curves, maps  # they register what `draw` draws
from veilmap.figures.style import Figure, draw, png, save

__all__ = ["Figure", "curves", "draw", "maps", "png", "save"]
