"""An audit on paper: figures and a JSON file."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from veilmap import __version__, _files, plots
from veilmap.attacks import PriorOnly
from veilmap.attacks.base import When
from veilmap.auditing import Audit
from veilmap.plots.audits import Figure, TradeoffPoint
from veilmap.radiomap import RadioMap


def write_audit(audit: Audit, radio_map: RadioMap, out: Path) -> list[Path]:
    """Write ``audit.json`` and the figures of one run; their paths."""
    path = out / "audit.json"
    write_json(audit.as_dict(), path)
    files = [path, plots.save(_cdf(audit), out / "errors.png")]
    if any(found.posteriors for found in audit.estimates.values()):
        files.append(plots.save(_beliefs(audit, radio_map), out / "posterior.png"))
    return files


def write_json(content: Mapping[str, Any], path: Path) -> None:
    """Write results with the version that gave them."""
    _files.write_json({"veilmap": __version__} | dict(content), path)


def write_tradeoff(audits: dict[str, Audit], out: Path) -> Path:
    """Map error against the strongest attack's, one point a run."""
    points = []
    for name, audit in audits.items():
        median = audit.strongest.median
        title = f"{name} ({audit.prior.users:,} users)"
        points.append(TradeoffPoint(title, audit.mae_db, median.value, median.low, median.high))
    prior = float(np.mean([audit.prior.median.value for audit in audits.values()]))
    known = [point for point in points if not math.isnan(point.mae_db)]
    return plots.save(plots.tradeoff_figure(known, prior), out / "tradeoff.png")


def shown_rounds(audit: Audit) -> dict[str, When]:
    """The rounds that tables and figures show: first, middle, last, and all together."""
    rounds = audit.rounds
    shown: dict[str, When] = {}
    for number in dict.fromkeys((rounds[0], rounds[len(rounds) // 2], rounds[-1])):
        shown[f"round {number + 1}"] = number
    if len(rounds) > 1:
        shown[f"all {len(rounds)} rounds together"] = "all"
    return shown


def label(audit: Audit) -> str:
    """A run in a few words."""
    return label_of(audit.mechanism, audit.server_sees)


def label_of(public: Mapping[str, Any], server_sees: str) -> str:
    """A mechanism, by its public description, and the trust model in a few words."""
    parts = [str(public["name"])]
    if "noise_budget" in public:
        parts.append(f"μ = {public['noise_budget']:g}")
    if "tradeoff" in public:
        parts.append(f"ρ = {public['tradeoff']:g}")
    if "epsilon" in public:
        parts.append(f"ε = {public['epsilon']:g}")
    if server_sees == "sums":
        parts.append("sums only")
    return ", ".join(parts)


def _cdf(audit: Audit) -> Figure:
    panels = {
        title: {
            name: found.placed[when].errors(audit.truth) for name, found in audit.estimates.items()
        }
        for title, when in shown_rounds(audit).items()
    }
    return plots.cdf_figure(panels, f"How far attackers are off ({label(audit)})")


def _beliefs(audit: Audit, radio_map: RadioMap) -> Figure:
    """The beliefs about the user whom the attack places as well as the median one."""
    found = next(found for found in audit.estimates.values() if found.posteriors)
    last: When = "all"
    errors = found.placed[last].errors(audit.truth)
    client = found.placed[last].clients[int(np.argsort(errors)[len(errors) // 2])]
    beliefs = [
        (title, belief.grid, belief.map_of(client))
        for title, when in shown_rounds(audit).items()
        if client in (belief := found.posteriors[when]).clients
    ]
    title = f"What the {found.attack} attack believes about user {client} ({label(audit)})"
    return plots.posterior_figure(
        radio_map.grid, radio_map.heights, beliefs, audit.truth[client], title
    )


def table_rows(audit: Audit) -> list[list[str]]:
    """The text table: attack, rounds seen, and figures in metres and percent."""
    rows = []
    for name in audit.estimates:
        for title, when in shown_rounds(audit).items():
            if name == PriorOnly.name and when != "all" and len(audit.rounds) > 1:
                continue  # the same in every round
            s = audit.score(name, when)
            median = s.median
            rows.append(
                [
                    name,
                    title.removeprefix("round ").removesuffix(" rounds together"),
                    metres(median.value),
                    f"{metres(median.low)}–{metres(median.high)}",
                    metres(s.rmse.value),
                    metres(s.within_95.value),
                    *(f"{100 * share.value:.0f}" for share in s.found.values()),
                ]
            )
    return rows


def metres(value: float) -> str:
    """A distance as people read it: about two digits."""
    digits = 2 if value < 0.95 else 1 if value < 9.5 else 0
    return f"{value:.{digits}f}"
