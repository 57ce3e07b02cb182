"""What a figure shows, as data: studies and reports say what to show, `draw` draws it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from veilmap.geometry.grid import Grid

Values = NDArray[np.float64]
Kind = Literal["line", "dashed", "dots"]

ATTACKER = "attacker's estimate"
"""The name of an estimate where there is one attacker only."""


@dataclass(frozen=True)
class Line:
    """One curve, with a band of one deviation either way where there is one.

    Lines of the same name in other panels look alike; a baseline is dashed.
    """

    name: str
    x: Values
    y: Values
    deviation: Values | None = None
    kind: Kind = "line"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        band = None if self.deviation is None else self.deviation.tolist()
        return {"name": self.name, "x": self.x.tolist(), "y": self.y.tolist(), "deviation": band}


@dataclass(frozen=True)
class Panel:
    """Curves that share axes; labels carry units."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Curves:
    """A row of panels with one legend."""

    name: str
    caption: str
    panels: tuple[Panel, ...]
    share_y: bool = True

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        panels = [
            {"title": own.title, "x": own.x_label, "y": own.y_label}
            | {"lines": [line.as_dict() for line in own.lines]}
            for own in self.panels
        ]
        return {"name": self.name, "caption": self.caption, "panels": panels}


@dataclass(frozen=True)
class MapPanel:
    """Values (rows, columns) over the ground, and where a user is and attackers look.

    Estimates of the same name in other panels look alike.
    """

    title: str
    values: Values = field(repr=False)
    user: Values | None = None
    estimates: Mapping[str, Values] = field(default_factory=dict)


@dataclass(frozen=True)
class Maps:
    """Rows of maps of the same ground with one colour scale.

    ``scale`` says what the colours mean, with its unit; ``limits`` are by default those of all
    values. Where the last row is shorter, the legend takes its free places.
    """

    name: str
    caption: str
    grid: Grid
    scale: str
    rows: tuple[tuple[MapPanel, ...], ...]
    limits: tuple[float, float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON: what the panels say, not their cells."""
        panels = [panel.title for row in self.rows for panel in row]
        return {"name": self.name, "caption": self.caption, "scale": self.scale, "panels": panels}


@dataclass(frozen=True)
class SideView:
    """A link over obstacles, seen from the side: one entry a cell, (n,), in metres.

    ``distance`` is that of the cell's middle from the user along the ground, ``width`` that of
    the link's chord; ``obstacles`` and ``link`` are h_m and z_m, ``clear`` is ψ(z_m − h_m).
    ``ends`` are (distance, height) of the user and the base station.
    """

    name: str
    caption: str
    title: str
    distance: Values = field(repr=False)
    width: Values = field(repr=False)
    obstacles: Values = field(repr=False)
    link: Values = field(repr=False)
    clear: Values = field(repr=False)
    ends: tuple[tuple[float, float], tuple[float, float]] = ((0.0, 0.0), (0.0, 0.0))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        cells = {key: getattr(self, key).tolist() for key in ("distance", "obstacles", "link")}
        return {"name": self.name, "caption": self.caption, "title": self.title} | cells


@dataclass(frozen=True)
class GroundMap:
    """Values over the ground in colours of their own, from a named colour map; NaN is grey.

    ``scale`` says what the colours mean, with its unit; ``limits`` of None take the least or
    largest value. Marked are a base station (3,), a user (2,) and an attacker's estimate (2,).
    """

    title: str
    grid: Grid
    values: Values = field(repr=False)
    scale: str
    colours: str
    limits: tuple[float | None, float | None] = (None, None)
    station: Values | None = None
    user: Values | None = None
    estimate: Values | None = None


@dataclass(frozen=True)
class GroundMaps:
    """Rows of maps of the same ground, under a title if there is one."""

    rows: tuple[tuple[GroundMap, ...], ...]
    title: str = ""


Picture = Curves | Maps | SideView
"""What experiments answer with."""
