"""How training went, as curves over its rounds, and what is not known of it."""

from dataclasses import dataclass

import numpy as np

from veilmap import figures
from veilmap.federation import HistoryRow
from veilmap.figures.content import Curves, Kind, Line, Panel
from veilmap.reports import html
from veilmap.reports.html import Html


@dataclass(frozen=True)
class _Quantity:
    """A field of the history; what to say where no round has it, or where it is 0 throughout."""

    field: str
    name: str
    unit: str
    caption: str
    unknown: str
    zero: str = ""


_QUANTITIES = (
    _Quantity(
        "loss", "loss", "dB²", "Mean squared error of the map on the users' own links",
        "The loss is not known: it stayed with the users.",
    ),
    _Quantity(
        "mae_db", "MAE", "dB", "Mean absolute error of the map on test users",
        "The map's error over the rounds is not known: there were no test users.",
    ),
    _Quantity(
        "noise_energy", "noise energy Σσ²", "dB⁴/m²", "Energy of a user's noise, on average",
        "The noise's energy is not known: it stayed with the users.", "No noise was added.",
    ),
    _Quantity(
        "epsilon", "ε", "", "ε spent so far by the user who spent most",
        "There is no ε to show: this mechanism has no (ε, δ) guarantee.",
    ),
)  # fmt: skip


def section(history: list[HistoryRow], *, withheld: bool = False) -> list[Html]:
    """A curve for each quantity that is known, a sentence for each that is not.

    Of a run with a guarantee what is measured on data is ``withheld``.
    """
    shown, said = [], [_WITHHELD] if withheld else []
    for quantity in _QUANTITIES:
        values = np.array([getattr(row, quantity.field) for row in history], dtype=np.float64)
        known = np.isfinite(values)
        if not known.any():
            said += [] if withheld else [quantity.unknown]
        elif quantity.zero and not values[known].any():
            said.append(quantity.zero)
        else:
            rounds = np.array([row.round + 1.0 for row in history])
            shown.append(_curve(quantity, rounds[known], values[known]))
    return [
        *([html.pictures(shown)] if shown else []),
        *([html.paragraph(" ".join(said))] if said else []),
    ]


_WITHHELD = (
    "Only what comes out of noisy sums, and public facts, is published of this run: no loss, no"
    " error of the map, and no ε where a seed makes the noise computable."
)


def _curve(quantity: _Quantity, rounds: np.ndarray, values: np.ndarray) -> Html:
    kind: Kind = "line" if len(rounds) > 1 else "dots"
    label = f"{quantity.name} ({quantity.unit})" if quantity.unit else quantity.name
    panel = Panel("", "round", label, (Line(quantity.name, rounds, values, kind=kind),))
    picture = Curves(quantity.field, quantity.caption, (panel,))
    first, last = (f"{values[i]:.3g} {quantity.unit}".rstrip() for i in (0, -1))
    seen = (
        f"Curve over rounds: {quantity.name} is {first} in round {rounds[0]:.0f} and {last} in"
        f" round {rounds[-1]:.0f}"
    )
    return html.picture(figures.png(picture), quantity.caption, seen)
