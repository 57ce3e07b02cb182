"""A run in words: what it is, and what it promises."""

import math

from veilmap.federation.config import Fingerprint
from veilmap.federation.transcript import SEEN
from veilmap.privacy.mechanisms import Mechanism, PrivateMechanism, PrivUnit
from veilmap.runs.opened import OpenRun

NO_UPLOADS = "This run kept no uploads: train with `--keep-uploads` to see attacks."
ONLY_FIELDS = (
    "This run kept only rounds that learn a residual field, which no attack here reads: keep"
    " earlier rounds too to see attacks."
)


def facts(run: OpenRun) -> list[tuple[str, str]]:
    """What a reader should know first."""
    transcript, grid = run.transcript(), run.radio_map().grid
    rows, columns = grid.shape
    made = None if run.data is None else run.command
    return [
        ("Mechanism", mechanism(transcript.mechanism)),
        ("The server sees", SEEN[transcript.server_sees]),
        ("Promise", promise(run)),
        ("Rounds", _rounds(run)),
        ("Learned from", _learned_from(run.config.data)),
        ("Map", f"{columns} × {rows} cells of {grid.cell_size:g} m"),
        ("Map error", _map_error(run)),
        ("Measurements", _measurements(run)),
        # In pieces, so that lines break between options.
        *([("To make it again", f"`{made}`".replace(" --", "` `--"))] if made else []),
    ]


def mechanism(used: Mechanism) -> str:
    """What clients do to their gradients."""
    covered = (
        "; gradients of θ and numbers of links leave only in sums" if used.covers_theta else ""
    )
    return used.in_words + covered


def promise(run: OpenRun) -> str:
    """The guarantee and what it rests on, or why there is none."""
    used = run.config.mechanism
    made = run.promise
    if math.isnan(made.epsilon):
        return f"{made.words}."
    assert isinstance(used, PrivateMechanism)  # and of veilmap's
    if isinstance(used, PrivUnit) and used.among is None:
        return f"{made.words}. It holds for every upload by itself, whoever sees it."
    if isinstance(used, PrivUnit):
        return (
            f"{made.words}. It rests on somebody who takes the names off uploads and mixes at least"
            f" {used.among:,} of a round, and does not collude with the server."
        )
    return (
        f"{made.words}. It rests on sums being all that the server sees, and on at least"
        f" {1 - used.dropout:.0%} of a round's users adding their noise."
    )


def _learned_from(data: Fingerprint | None) -> str:
    """Who measured; under a guarantee nobody says how often."""
    if data is None:
        return "users on nodes of their own"
    links = "" if data.links is None else f" with {data.links:,} links"
    return f"{data.users:,} users{links}"


def _rounds(run: OpenRun) -> str:
    """The number of rounds played, and of those among them that were discarded."""
    history, asked = run.history(), run.config.rounds
    words = f"{len(history)}" if len(history) == asked else f"{len(history)} of {asked}"
    unopened = sum(not row.opened for row in history)
    return f"{words}, {unopened} of them without enough answers" if unopened else words


def _map_error(run: OpenRun) -> str:
    mae_db = run.mae_db
    if math.isnan(mae_db):
        if run.withheld:
            return "not published"
        return "not measured: no test users were at hand"
    return f"{mae_db:.2f} dB on average (MAE) on test users"


def _measurements(run: OpenRun) -> str:
    if run.data is None:
        return f"not at hand: {run.missing}"
    if run.source is None:
        return "named by hand for this report, and the run's own"
    if run.source.data is None:
        return f"synthetic city {run.source.city}, whose truth is known"
    return run.source.data.name
