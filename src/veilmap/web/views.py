"""What the page shows of a run, computed."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import singledispatch
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Query

from veilmap import layers
from veilmap._util.options import options_of
from veilmap._util.plain import to_plain
from veilmap.auditing.exposure import Exposure, Knobs, Witness
from veilmap.errors import ConfigurationError, RunFolderError, VeilmapError
from veilmap.federation.history import HistoryRow, last_mae
from veilmap.federation.messages import ClientId
from veilmap.geometry.grid import Grid
from veilmap.layers import Layer
from veilmap.layers.layer import centres
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.mechanisms import Mechanism, author_of
from veilmap.reports import surveys
from veilmap.reports.audits import marked
from veilmap.reports.exposures import comparable
from veilmap.reports.maps import outdoors
from veilmap.scenes.scene import Scene
from veilmap.web import schema
from veilmap.web.downsampling import HIGHEST, MIDDLE, STRONGEST, Downsampled
from veilmap.web.schema import known
from veilmap.web.served import NO_TRANSCRIPT, Served, ServedRun, ServedSurvey

_MOST_USERS = 5_000  # whose ids a list shows
_MIDDLE_PERCENT = (1.0, 99.0)  # of values that the colours cover

_TITLES: dict[schema.LayerName, str] = {
    "gain": "Gain",
    "los": "Probability of line of sight",
    "best-server": "Best server",
    "heights": "Heights of obstacles",
    "uncertainty": "Uncertainty of the gain",
}
_PER_STATION = ("gain", "los", "uncertainty")
_COMPARABLE = ("gain", "los", "heights")

_SCHEMES: dict[schema.SchemeName, str] = {
    "no noise": "clipped, no noise",
    "uniform": "uniform noise",
    "aligned": "geometry-aligned noise",
    "sent": "as this run sent it",
}


@dataclass(frozen=True)
class LayerRequest:
    """A layer that somebody asks for, ``of`` the "learned" map, the "true" one or the "error".

    Its base station is a new one at a place, or one of the run's by its id; ``altitude`` is that
    of receivers, in metres.
    """

    layer: schema.LayerName = "gain"
    of: Literal["learned", "true", "error"] = "learned"
    x: schema.Number | None = None
    y: schema.Number | None = None
    z: schema.Number | None = None
    station: Annotated[str | None, Query(max_length=200)] = None
    altitude: Annotated[float, Query(ge=0, le=10_000, allow_inf_nan=False)] = 1.5

    @property
    def place(self) -> tuple[float, float, float] | None:
        """Where a new base station is."""
        x, y, z = self.x, self.y, self.z
        return None if x is None or y is None or z is None else (x, y, z)


def title(mechanism: type[Mechanism]) -> str:
    """A kind of mechanism for people who choose one, and whose it is if not veilmap's."""
    author, name = author_of(mechanism), mechanism.title or mechanism.name
    return name if author is None else f"{name} ({author})"


def declared_options(mechanism: type[Mechanism]) -> list[schema.OptionInfo]:
    """The options of a mechanism for a form."""
    infos = []
    for name, one in options_of(mechanism).items():
        if one.choices:  # forms have numbers
            continue
        least, most = max(one.above, one.least), min(one.below, one.most)
        infos.append(schema.OptionInfo(name, one.help, one.default, known(least), known(most)))
    return infos


# ---- a run, or a survey


def summary(
    name: str, run: Served, state: schema.RunState, problem: str | None = None
) -> schema.RunSummary:
    """A run in a list."""
    try:
        rows = run.history()
        if run.stuck:
            state, problem = "failed", run.stuck
        return schema.RunSummary(
            kind=run.kind, id=name, name=run.path.name, label=run.label,
            state=state, played=len(rows), rounds=run.rounds,
            mae_db=known(last_mae(rows)), users=run.users, problem=problem,
            study=run.study or None,
        )  # fmt: skip
    except VeilmapError as error:
        return schema.RunSummary(
            kind=run.kind, id=name, name=run.path.name, label="cannot be read",
            state="unreadable", played=0, rounds=0, mae_db=None, users=0, problem=str(error),
        )  # fmt: skip


@singledispatch
def detail(run: Served, head: schema.RunSummary) -> schema.RunDetail:
    """All that the page must know to show it."""
    raise TypeError(f"no way to show a {type(run).__name__}")


@detail.register
def _(run: ServedRun, head: schema.RunSummary) -> schema.RunDetail:
    config = run.config
    used = to_plain(config.mechanism)
    return schema.RunDetail(
        **_common(run, head),
        mechanism={key: value for key, value in used.items() if not isinstance(value, dict)},
        server_sees=config.server_sees,
        kept=[number + 1 for number in run.attackable_rounds()],
        user_ids=_user_ids(run),
        why_no_attacks=_why_no_attacks(run),
        measured=run.data is not None,
        command=run.command,
        survey=None,
    )


@detail.register
def _(run: ServedSurvey, head: schema.RunSummary) -> schema.RunDetail:
    found = run.audit
    tables = [] if found is None else surveys.tables(found)
    return schema.RunDetail(
        **_common(run, head),
        mechanism={}, server_sees="sums", kept=[], user_ids=[], why_no_attacks=None,
        measured=False, command=None,
        survey=schema.SurveyDetail(
            facts=[schema.Fact(*pair) for pair in surveys.facts(run)],
            audit=[schema.AuditTable(one.caption, [*one.columns], one.rows) for one in tables],
            why_no_audit=None if tables else run.withheld or surveys.NO_AUDIT,
        ),
    )  # fmt: skip


def _common(run: Served, head: schema.RunSummary) -> dict[str, Any]:
    """What runs and surveys have alike."""
    if head.state == "unreadable":
        raise RunFolderError(head.problem or "this run cannot be read")
    places, ids = run.stations
    return asdict(head) | {
        "grid": _grid_info(run.radio_map().grid),
        "stations": [
            schema.Station(bs, x, y, z, run.station_errors.get(bs))
            for bs, (x, y, z) in zip(ids, places.tolist(), strict=True)
        ],
        "layers": [_info(run, name) for name in run.layers],
        "promise": run.promise.words,
        "has_buildings": bool(run.buildings),
    }


def _grid_info(grid: Grid) -> schema.GridInfo:
    return schema.GridInfo(*grid.shape, grid.cell_size, *grid.extent, grid.crs)


def _user_ids(run: ServedRun) -> list[str]:
    """Who can be looked at, as far as a list goes."""
    kept = run.attackable_rounds()
    if run.data is None and kept:
        return [str(user) for user in run.witness().users(kept[0])[:_MOST_USERS]]
    return [] if run.data is None else run.data.users[:_MOST_USERS].astype(str).tolist()


def _info(run: Served, name: schema.LayerName) -> schema.LayerInfo:
    why_not = None
    if name == "best-server" and len(run.stations[0]) == 0:
        why_not = "the run does not say where base stations are"
    if name == "uncertainty":
        why_not = run.why_no_uncertainty
    comparable = name in _COMPARABLE and run.scene is not None
    per_station, placeable = name in _PER_STATION, name in run.placeable
    return schema.LayerInfo(name, _TITLES[name], per_station, placeable, why_not, comparable)


def _why_no_attacks(run: ServedRun) -> str | None:
    if run.attackable_rounds():
        return None
    if not run.finished:
        return "no round of this run was kept yet: attacks can be tried once one is"
    return NO_TRANSCRIPT


def history_rows(rows: list[HistoryRow]) -> list[schema.RoundRow]:
    """Rounds as JSON can hold them."""

    def plain(value: Any) -> Any:
        return known(value) if isinstance(value, float) else value

    return [
        schema.RoundRow(**{name: plain(value) for name, value in asdict(row).items()})
        for row in rows
    ]


# ---- layers


def layer(run: Served, request: LayerRequest, *, whole: bool = False) -> Layer:
    """The layer that was asked for, in the cells that are shown or in all of a ``whole`` map."""
    if request.layer not in run.layers:
        raise RunFolderError(f"a {run.kind} has no {_TITLES[request.layer].lower()}")
    if request.layer in _PER_STATION and (request.place is None) == (request.station is None):
        raise ConfigurationError(
            f"{request.layer} needs one base station: its id, or x, y and z", "station"
        )
    if request.layer not in _PER_STATION:
        request = replace(request, x=None, y=None, z=None, station=None)
    if request.of != "learned" and (run.scene is None or request.layer not in _COMPARABLE):
        unknown = f"nobody knows the true {_TITLES[request.layer].lower()} of this run"
        raise RunFolderError(run.withheld or unknown)
    if whole and Downsampled(run.radio_map().grid).times > 1:
        # Too large to keep, and nobody else should wait for it.
        return _made(run, run.radio_map(), request, None)
    replicas = len(run.replica_files()) if request.layer == "uncertainty" else 0
    return run.layer(
        (request, replicas),
        lambda radio_map: _made(run, radio_map, request, Downsampled(radio_map.grid)),
    )


def _made(
    run: Served, radio_map: RadioMap, request: LayerRequest, shown: Downsampled | None
) -> Layer:
    """A layer in the cells that are shown, or without those in the map's own.

    Of a run with a guarantee, one that the map alone does not decide says so in its name.
    """
    made = _learned(run, radio_map, request, shown)
    if request.of != "learned":
        assert run.scene is not None  # asked for above
        true = _true_values(run.scene, request, _place(run, request), made.grid, shown)
        error = request.of == "error"
        made = replace(
            made,
            name=f"{made.name}_error" if error else made.name,
            values=made.values - true if error else true,
            long_name=f"{'error of the' if error else 'true'} {made.long_name}",
            exact=None,
        )
    if not run.study or (request.of == "learned" and request.layer != "uncertainty"):
        return made
    return replace(made, long_name=marked(run.study, made.long_name))


def _learned(
    run: Served, radio_map: RadioMap, request: LayerRequest, shown: Downsampled | None
) -> Layer:
    grid = radio_map.grid if shown is None else shown.grid
    if request.layer == "heights":
        made = layers.obstacle_heights(radio_map)
        values = made.values if shown is None else shown.highest(made.values)
        return replace(made, values=values, grid=grid)
    if request.layer == "best-server":
        places, ids = run.stations
        return layers.best_server(radio_map, places, request.altitude, ids=ids, grid=grid)[0]
    place, station = _place(run, request), request.station
    if request.layer == "los":
        return layers.los_probability(
            radio_map, place, request.altitude, station=station, grid=grid
        )
    if request.layer == "gain":
        return layers.gain(radio_map, place, request.altitude, station=station, grid=grid)
    if run.why_no_uncertainty:
        raise RunFolderError(f"no uncertainty: {run.why_no_uncertainty}")
    return run.uncertainty(radio_map, place, request.altitude, station, grid)


def _place(run: Served, request: LayerRequest) -> tuple[float, float, float]:
    if request.place is not None or request.station is None:
        return request.place or (0.0, 0.0, 0.0)
    places, ids = run.stations
    if request.station not in ids:
        raise ConfigurationError(f"the run has no base station {request.station}", "station")
    return tuple(places[ids.index(request.station)].tolist())


def _true_values(
    scene: Scene,
    request: LayerRequest,
    place: tuple[float, float, float],
    grid: Grid,
    shown: Downsampled | None,
) -> np.ndarray:
    """The scene's own values; none inside buildings, where nobody measures."""
    if request.layer == "heights":
        return scene.heights if shown is None else shown.highest(scene.heights)
    quantity: Callable[..., Any] = scene.gain if request.layer == "gain" else scene.line_of_sight
    values = np.asarray(quantity(centres(grid, request.altitude), place), dtype=np.float64)
    return outdoors(scene, values.reshape(grid.shape), grid)


def layer_answer(run: Served, made: Layer) -> bytes:
    """A layer as the page reads it."""
    found = made.values[np.isfinite(made.values)]
    low, high = np.percentile(found, _MIDDLE_PERCENT) if found.size else (0.0, 1.0)
    if made.name == "los":
        low, high = 0.0, 1.0
    if not low < high:
        low, high = low - 0.5, high + 0.5
    shown = Downsampled(run.radio_map().grid)
    which = HIGHEST if made.name.startswith("heights") else MIDDLE
    study = [f"{run.study}."] if run.study and made.long_name.startswith(run.study) else []
    header = schema.LayerHeader(
        made.name, made.long_name, made.unit, made.categories, float(low), float(high),
        _grid_info(made.grid), shown.how(which), study + shown.notes(which),
    )  # fmt: skip
    return schema.packed(header, {"values": made.values})


# ---- what the server sees


def opened_sum(run: ServedSurvey, station: str) -> bytes:
    """What was opened of one base station of a survey, as the page reads it."""
    found = run.sum_of(station)
    shown = Downsampled(run.survey.grid)
    header = schema.SumHeader(
        station, found.noise, surveys.told(found), _grid_info(shown.grid), shown.how(STRONGEST),
        [surveys.UNIT, *shown.notes(STRONGEST)],
    )  # fmt: skip
    arrays = {"length": found.length, "counts": found.counts}
    return schema.packed(header, {name: shown.strongest(arrays[name]) for name in arrays})


def seen(run: ServedRun, user: str, number: int, knobs: Knobs, *, summed: bool) -> bytes:
    """One user in one round, counted from 0, as the page reads it."""
    witness = run.witness()
    client = witness.named(user, number)
    found = (_sum if summed else Witness.upload)(witness, client, number, knobs)
    shown = Downsampled(witness.transcript.grid)
    received = {name: scheme.received for name, scheme in found.schemes.items()}
    if found.deviations is not None:
        received["noise"] = found.deviations
    arrays = {
        name: shown.strongest(values.reshape(shown.whole.shape))
        for name, values in received.items()
    }
    order = [name for name in _SCHEMES if name in found.schemes]
    at = found.position
    header = schema.SeenHeader(
        user, number + 1, found.summed,
        None if at is None else schema.Position(float(at[0]), float(at[1])),
        known(found.norm),
        [_scheme(found, name) for name in order],
        list(found.pending) if comparable(shown.whole) else [],
        _grid_info(shown.grid),
        shown.how(STRONGEST),
        _notes(run, found) + shown.notes(STRONGEST),
    )  # fmt: skip
    return schema.packed(header, arrays)


def _sum(witness: Witness, client: ClientId, number: int, knobs: Knobs) -> Exposure:
    """A sum over a round's users; of very many only the one that the server has seen."""
    try:
        return witness.sum(client, number, knobs)
    except VeilmapError:
        if witness.data is None or witness.transcript.server_sees == "uploads":
            raise
        return Witness(witness.transcript).sum(client, number, knobs)


def _scheme(found: Exposure, name: schema.SchemeName) -> schema.Scheme:
    estimates = [
        schema.Estimate(attack, float(xy[0]), float(xy[1]), known(found.error(name, attack)))
        for attack, xy in found.schemes[name].estimates.items()
    ]
    return schema.Scheme(name, _SCHEMES[name], estimates)


_SEES = {
    "sums": "sums: no single upload reaches it",
    "shuffled": "uploads without names: whose one is, it does not know",
}


def _notes(run: ServedRun, found: Exposure) -> list[str]:
    notes = [f"{run.study}."] if run.study else []
    if run.withheld:
        notes.append(f"{run.withheld[0].upper()}{run.withheld[1:]}.")
    elif found.position is None and run.data is None:
        notes.append(
            "The measurements are not on this host: what would have been sent under other budgets,"
            " and how far attacks are off, is not known here."
        )
    elif found.position is None:
        notes.append(
            f"A sum over {found.summed:,} users of a map of this size takes too long to try out"
            " under other budgets: only what was sent is shown."
        )
    if run.config.server_sees != "uploads" and found.summed is None:
        notes.append(f"This run's server sees only {_SEES[run.config.server_sees]}.")
    if not run.witness().compares:
        notes.append("The run does not say where base stations are: attacks that need them wait.")
    if not run.finished:
        notes.append("The run goes on: attacks expect gains after its newest map.")
    if found.pending and not comparable(run.radio_map().grid):
        notes.append(
            "The map is too large to compare all places with it here; not tried:"
            f" {', '.join(found.pending)}."
        )
    return notes
