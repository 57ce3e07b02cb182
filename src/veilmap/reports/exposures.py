"""What the server sees of one user on paper: uploads under every scheme, and attacks on them."""

import numpy as np

from veilmap import figures
from veilmap.auditing.audit import Audit
from veilmap.auditing.exposure import SENT, Exposure, Knobs, Witness
from veilmap.auditing.measured import metres
from veilmap.errors import ConfigurationError, VeilmapError
from veilmap.federation.messages import ClientId
from veilmap.federation.transcript import SeenRound, Transcript
from veilmap.figures.content import MapPanel, Maps
from veilmap.geometry.grid import Grid
from veilmap.privacy.mechanisms import Mechanism
from veilmap.reports import html
from veilmap.reports.html import Html
from veilmap.runs.opened import OpenRun

_COLUMNS = 2
_SCALE = "√|gradient| or √σ (dB per √m)"

# Templates of 10,000 places on more cells than this take gigabytes.
_MOST_CELLS = 100_000


def comparable(grid: Grid) -> bool:
    """Whether a map is small enough for attacks that remember what every place would send."""
    return grid.cells <= _MOST_CELLS


def typical_user(run: OpenRun, audit: Audit | None) -> ClientId:
    """The user whom the strongest attack places as well as the median one.

    Where nothing was scored: whose first kept upload is as large as the median one, or, if only
    sums are seen, who is in the middle of the list.
    """
    if audit is not None:
        best = audit.strongest
        placed = audit.estimates[best.attack].placed[best.when]
        sizes, clients = placed.errors(audit.truth), placed.clients
    else:
        first = run.transcript().rounds[run.attackable_rounds()[0]]
        clients, sizes = first.clients, np.arange(len(first.clients), dtype=np.float64)
        if isinstance(first, SeenRound):
            sizes = np.linalg.norm(first.uploads, axis=1)
    return clients[int(np.argsort(sizes, kind="stable")[len(sizes) // 2])]


def knobs_of(mechanism: Mechanism) -> Knobs:
    """The mechanism's own parameters, and usual ones for those that it does not have."""
    return Knobs(
        noise_budget=getattr(mechanism, "noise_budget", Knobs.noise_budget),
        tradeoff=getattr(mechanism, "tradeoff", Knobs.tradeoff),
        clip=mechanism.clip,
    )


def user_named(run: OpenRun, text: str) -> ClientId:
    """The user of a kept round whose id reads like this."""
    for number in run.attackable_rounds():
        for user in run.witness().users(number):
            if str(user) == text:
                return user
    raise ConfigurationError(f"user: {text} took part in no kept round of {run.path}", "user")


def section(run: OpenRun, user: ClientId, level: int) -> list[Html]:
    """One user in the first and last kept round that they took part in, under headings."""
    witness = run.witness()
    transcript = witness.transcript
    knobs = knobs_of(transcript.mechanism)
    rounds = [number for number in run.attackable_rounds() if user in witness.users(number)]
    parts = [html.paragraph(_explained(transcript, knobs, known=run.data is not None))]
    for number in dict.fromkeys((rounds[0], rounds[-1])):
        exposure, left_out = _looked_at(witness, user, number, knobs)
        parts.append(html.heading(f"User {user} in round {number + 1}", level))
        if left_out:
            parts.append(html.paragraph(f"Only what was sent is shown: {left_out}."))
        picture = _picture(exposure, transcript, knobs)
        parts.append(html.picture(figures.png(picture), picture.caption))
        if any(scheme.estimates for scheme in exposure.schemes.values()):
            parts.append(_table(exposure, knobs))
        if exposure.pending:
            names = ", ".join(exposure.pending)
            parts.append(html.paragraph(f"The map is too large to try {names} on it here."))
    return parts


def _looked_at(witness: Witness, user: ClientId, number: int, knobs: Knobs) -> tuple[Exposure, str]:
    """The exposure, and why it lacks what might have been sent, if it does."""
    _prepare(witness, number)
    if witness.transcript.server_sees == "uploads":
        return witness.upload(user, number, knobs), ""
    try:
        return witness.sum(user, number, knobs), ""
    except VeilmapError as error:  # too many users to add up here
        received = Witness(witness.transcript)
        _prepare(received, number)
        return received.sum(user, number, knobs), str(error)


def _prepare(witness: Witness, number: int) -> None:
    if comparable(witness.transcript.grid):
        witness.prepare(number)


def _explained(transcript: Transcript, knobs: Knobs, *, known: bool) -> str:
    """What the pictures show, and what they are not."""
    sums = transcript.server_sees != "uploads"
    thing = "the mean gradient of a round's users" if sums else "one user's gradient"
    words = f"The maps show {thing} as the server receives it, and where attacks place the user."
    if not known:
        return (
            f"{words} The measurements are not at hand: what was sent is all that can be shown,"
            " and how far attacks are off is not known."
        )
    words += (
        " Beside what was sent stand the same gradients without noise, with uniform and with"
        " geometry-aligned noise, drawn for this report. The ring is where the user was: this page"
        " is for who holds the measurements anyway."
    )
    signs = {"noise_budget": "μ", "tradeoff": "ρ"}
    lacking = [
        f"{sign} = {getattr(knobs, name):g}"
        for name, sign in signs.items()
        if not hasattr(transcript.mechanism, name)
    ]
    if lacking:
        words += f" This run's mechanism has no such parameters; taken are {', '.join(lacking)}."
    return words


def _picture(exposure: Exposure, transcript: Transcript, knobs: Knobs) -> Maps:
    """What is received under every scheme, and the noise's σ."""
    shape = transcript.grid.shape
    panels = []
    for name, title in _titles(exposure, knobs).items():
        scheme = exposure.schemes[name]
        values = np.sqrt(np.abs(scheme.received)).reshape(shape)
        panels.append(MapPanel(title, values, exposure.position, scheme.estimates))
    if exposure.deviations is not None:
        deviations = np.sqrt(exposure.deviations).reshape(shape)
        panels.insert(-1, MapPanel("σ of the aligned noise", deviations, exposure.position))
    starts = range(0, len(panels), _COLUMNS)
    rows = tuple(tuple(panels[start : start + _COLUMNS]) for start in starts)
    return Maps(f"round-{exposure.round + 1}", _caption(exposure), transcript.grid, _SCALE, rows)


def _caption(exposure: Exposure) -> str:
    what, own = f"User {exposure.user}'s gradient", "its"
    if exposure.summed is not None:
        what = f"The mean gradient of {exposure.summed:,} users, user {exposure.user} among them,"
        own = "their own"
    words = f"{what} in round {exposure.round + 1} under every scheme"
    norm = f"; {own} norm before clipping is {exposure.norm or 0:.2g}"
    return words if exposure.norm is None else words + norm


def _titles(exposure: Exposure, knobs: Knobs) -> dict[str, str]:
    """Titles of the schemes by their names, what was sent at the end."""
    titles = {
        "no noise": "no noise",
        "uniform": f"uniform, μ = {knobs.noise_budget:g}",
        "aligned": f"aligned, μ = {knobs.noise_budget:g}, ρ = {knobs.tradeoff:g}",
        SENT: "sent",
    }
    return {name: title for name, title in titles.items() if name in exposure.schemes}


def _table(exposure: Exposure, knobs: Knobs) -> Html:
    """Every attack's error under every scheme, or its place where the truth is not known."""
    titles = _titles(exposure, knobs)
    attacks = dict.fromkeys(name for one in titles for name in exposure.schemes[one].estimates)
    what = "Metres between" if exposure.position is not None else "Places (x, y in metres) of"
    truth = " and the truth" if exposure.position is not None else ""
    return html.table(
        f"{what} attackers' estimates{truth}: user {exposure.user}, round {exposure.round + 1}",
        ["attack", *titles.values()],
        [[attack, *(_found(exposure, name, attack) for name in titles)] for attack in attacks],
    )


def _found(exposure: Exposure, scheme: str, attack: str) -> str:
    away = exposure.error(scheme, attack)
    if away is not None:
        return metres(away)
    x, y = exposure.schemes[scheme].estimates[attack]
    return f"{x:.0f}, {y:.0f}"
