"""Layers as bare pictures for maps of other tools: one pixel a cell, the legend beside them."""

from pathlib import Path

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.image import imsave

from veilmap.figures.style import GAIN, HEIGHTS, SIZE, SMALL, UNCERTAINTY, categories
from veilmap.layers import Layer

_COLOURS = {"heights": HEIGHTS, "los": "gray", "coverage": "magma", "uncertainty": UNCERTAINTY}

# A few cells beside a base station must not take all the colours.
_MIDDLE_PERCENT = (1.0, 99.0)

_MOST_NAMED = 10


def save_layer_image(layer: Layer, path: Path) -> None:
    """Write the layer's cells, north up; cells without a value are transparent."""
    scale = _scale(layer)
    north_up = np.ma.masked_invalid(np.flipud(layer.values))
    imsave(path, scale.to_rgba(north_up, bytes=True), format="png")


def save_layer_legend(layer: Layer, path: Path) -> None:
    """Write what the colours mean."""
    figure = Figure(figsize=(4.2, 0.8))
    figure.set_layout_engine("constrained", w_pad=0.1)
    axes = figure.subplots()
    scale = _scale(layer)
    label = layer.long_name if layer.unit == "1" else f"{layer.long_name} ({layer.unit})"
    if layer.categories:
        numbers = _numbers(layer)
        bar = figure.colorbar(scale, cax=axes, orientation="horizontal", spacing="uniform")
        shown = numbers[:: -(-len(numbers) // _MOST_NAMED)]
        edges = np.searchsorted(numbers, shown)
        bounds = _bounds(numbers)
        bar.set_ticks(0.5 * (bounds[edges] + bounds[edges + 1]), labels=[f"{n:g}" for n in shown])
        bar.ax.minorticks_off()
    else:
        bar = figure.colorbar(scale, cax=axes, orientation="horizontal", extend=_beyond(layer))
    bar.set_label(label, size=SIZE)
    bar.ax.tick_params(labelsize=SMALL)
    figure.savefig(path, dpi=150, format="png")


def _scale(layer: Layer) -> ScalarMappable:
    if layer.categories:
        numbers = _numbers(layer)
        norm = BoundaryNorm(_bounds(numbers), len(numbers))
        return ScalarMappable(norm, categories(len(numbers)))
    return ScalarMappable(Normalize(*_limits(layer)), _COLOURS.get(layer.name, GAIN))


def _limits(layer: Layer) -> tuple[float, float]:
    known = layer.values[np.isfinite(layer.values)]
    if layer.name == "los" or known.size == 0:
        return 0.0, 1.0
    low, high = np.percentile(known, _MIDDLE_PERCENT)
    return (low, high) if low < high else (low - 0.5, low + 0.5)


def _beyond(layer: Layer) -> str:
    """At which ends values go on beyond the colours."""
    low, high = _limits(layer)
    less, more = bool(np.any(layer.values < low)), bool(np.any(layer.values > high))
    if less and more:
        return "both"
    return "min" if less else "max" if more else "neither"


def _numbers(layer: Layer) -> np.ndarray:
    """The numbers that occur: others need no colour."""
    known = np.unique(layer.values[np.isfinite(layer.values)])
    return known if known.size else np.zeros(1)


def _bounds(numbers: np.ndarray) -> np.ndarray:
    """Halfway between neighbouring numbers."""
    middles = 0.5 * (numbers[1:] + numbers[:-1])
    return np.concatenate([[numbers[0] - 0.5], middles, [numbers[-1] + 0.5]])
