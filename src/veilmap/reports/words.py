"""A run in words: what it is, and what it promises."""

import math
from collections.abc import Mapping
from typing import Any

from veilmap.privacy import accounting
from veilmap.reports.subjects import Subject

NO_UPLOADS = "This run kept no uploads: train with `--keep-uploads` to see attacks."
ONLY_FIELDS = (
    "This run kept only rounds that learn a residual field, which no attack here reads: keep"
    " earlier rounds too to see attacks."
)

_MECHANISMS = {
    "none": "no noise: gradients are clipped to norm C = {clip:g} and leave as they are",
    "uniform": "uniform noise: gradients are clipped to norm C = {clip:g} and get Gaussian noise"
    " of μ = {noise_budget:g} times their energy, the same in every cell",
    "aligned": "geometry-aligned noise: gradients are clipped to norm C = {clip:g} and get"
    " Gaussian noise of μ = {noise_budget:g} times their energy, on a slope that leans away from"
    " the user (ρ = {tradeoff:g})",
    "aggregate": "noise on the sum: contributions are clipped to norm C = {clip:g}, and every user"
    " adds a share of discrete Gaussian noise, in all z = {noise_multiplier:.3g} times the largest"
    " contribution",
}

_TRUST = {
    "uploads": "every user's upload",
    "sums": "only sums over a round's users; who took part is not hidden",
}


def facts(subject: Subject) -> list[tuple[str, str]]:
    """What a reader should know first."""
    run, config = subject.run, subject.config
    rows, columns = run.radio_map.grid.shape
    made = subject.command
    return [
        ("Mechanism", mechanism(run.transcript.mechanism)),
        ("The server sees", _TRUST[run.transcript.server_sees]),
        ("Promise", promise(subject)),
        ("Rounds", _rounds(subject)),
        ("Learned from", _learned_from(config["data"])),
        ("Map", f"{columns} × {rows} cells of {run.radio_map.grid.cell_size:g} m"),
        ("Map error", _map_error(subject)),
        ("Measurements", _measurements(subject)),
        # In pieces, so that lines break between options.
        *([("To make it again", f"`{made}`".replace(" --", "` `--"))] if made else []),
    ]


def mechanism(public: Mapping[str, Any]) -> str:
    """What clients do to their gradients."""
    return _MECHANISMS[public["name"]].format(**public)


def promise(subject: Subject) -> str:
    """The guarantee and what it rests on, or why there is none."""
    history, public = subject.run.history, subject.run.transcript.mechanism
    spent = history[-1].epsilon if history else math.nan
    made = accounting.promise(public, spent, subject.config["seed"])
    if math.isnan(made.epsilon):
        return f"{made.words}."
    return (
        f"{made.words}. It rests on sums being all that the server sees, and on at least"
        f" {1 - public['dropout']:.0%} of a round's users adding their noise."
    )


def _learned_from(data: Mapping[str, Any] | None) -> str:
    """Who measured; under a guarantee nobody says how often."""
    if data is None:
        return "users on nodes of their own"
    links = f" with {data['links']:,} links" if "links" in data else ""
    return f"{data['users']:,} users{links}"


def _rounds(subject: Subject) -> str:
    """How many were played, and how many of them came to nothing."""
    history, asked = subject.run.history, subject.config["rounds"]
    words = f"{len(history)}" if len(history) == asked else f"{len(history)} of {asked}"
    unopened = sum(not row.opened for row in history)
    return f"{words}, {unopened} of them without enough answers" if unopened else words


def _map_error(subject: Subject) -> str:
    mae_db = subject.mae_db
    if math.isnan(mae_db):
        if subject.withheld:
            return "not published"
        return "not measured: no test users were at hand"
    return f"{mae_db:.2f} dB on average (MAE) on test users"


def _measurements(subject: Subject) -> str:
    if subject.data is None:
        return f"not at hand: {subject.missing}"
    if subject.source is None:
        return "named by hand for this report, and the run's own"
    if subject.source.data is None:
        return f"synthetic city {subject.source.city}, whose truth is known"
    return subject.source.data.name
