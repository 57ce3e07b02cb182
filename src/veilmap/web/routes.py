"""The routes: requests in, answers out; what they mean is elsewhere."""

import math
import tempfile
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as InPath
from fastapi.responses import FileResponse, Response, StreamingResponse
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool

from veilmap import __version__, export
from veilmap.auditing.exposure import Knobs
from veilmap.errors import ConfigurationError
from veilmap.privacy.mechanisms import MECHANISMS
from veilmap.reports.exposures import comparable
from veilmap.runs.command import NewTraining, model_options
from veilmap.runs.source import Source
from veilmap.web import events, schema, views
from veilmap.web.served import Served, ServedRun, ServedSurvey
from veilmap.web.service import Service

looking = APIRouter()
doing = APIRouter()

_CELL_SIZE = 3.0  # of synthetic cities

RunId = Annotated[str, InPath(max_length=200)]


class _Packed(Response):
    media_type = "application/octet-stream"


class _Events(StreamingResponse):
    media_type = "text/event-stream"


REFUSALS = {
    400: "What was asked for cannot be done; the line says why",
    404: "There is no such run, or not any more",
    422: "A value is missing or out of bounds",
}


def _holding(model: type, what: str) -> dict[int | str, dict[str, Any]]:
    """The description of an answer that holds a class in another format than refusals have."""
    refusal = {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
    described: dict[int | str, dict[str, Any]] = {200: {"model": model, "description": what}}
    for status, text in REFUSALS.items():
        described[status] = {"description": text, "content": refusal}
    return described


_PACKED = "The object as a line of JSON, then its arrays as float32, row 0 southern"
_GEOTIFF: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/tiff": {}}, "description": "A GeoTIFF"}
}


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _opened(request: Request, run: RunId) -> Served:
    return _service(request).library.open(run)


def _opened_run(request: Request, run: RunId) -> ServedRun:
    return _service(request).library.open_run(run)


def _opened_survey(request: Request, run: RunId) -> ServedSurvey:
    return _service(request).library.open_survey(run)


TheService = Annotated[Service, Depends(_service)]
TheResult = Annotated[Served, Depends(_opened)]
TheRun = Annotated[ServedRun, Depends(_opened_run)]
TheSurvey = Annotated[ServedSurvey, Depends(_opened_survey)]


# ---- looking


@looking.get("/state")
def overview(service: TheService) -> schema.Overview:
    """Which runs there are, and what is being worked on."""
    return service.overview(__version__)


@looking.get("/runs/{run}")
def run_detail(service: TheService, run: RunId, opened: TheResult) -> schema.RunDetail:
    """All that the page must know to show a run."""
    return views.detail(opened, service.summary(run))


@looking.get("/runs/{run}/history")
def run_history(opened: TheResult) -> schema.History:
    """Every round so far."""
    return schema.History(views.history_rows(opened.history()), opened.study or None)


@looking.get(
    "/runs/{run}/events",
    response_class=_Events,
    responses=_holding(schema.ProgressEvent, 'Events "progress", then one "end"'),
)
async def run_events(service: TheService, run: RunId) -> _Events:
    """Rounds as they are played."""
    await run_in_threadpool(service.summary, run)  # refuses a run that is not there
    events.check_listeners(service)
    return _Events(events.follow(service, run))


@looking.get("/runs/{run}/buildings")
def run_buildings(opened: TheResult) -> schema.Buildings:
    """Footprints to draw the map on."""
    rings = [building.footprint.exterior.coords for building in opened.buildings]
    # To the centimetre: a city has many corners.
    return schema.Buildings([[(round(x, 2), round(y, 2)) for x, y, *_ in ring] for ring in rings])


ALayerRequest = Annotated[views.LayerRequest, Depends()]


@looking.get(
    "/runs/{run}/layer", response_class=_Packed, responses=_holding(schema.LayerHeader, _PACKED)
)
def run_layer(opened: TheResult, wanted: ALayerRequest) -> _Packed:
    """A layer over the map's cells, or over larger ones where it has very many."""
    return _Packed(views.layer_answer(opened, views.layer(opened, wanted)))


@looking.get("/runs/{run}/layer.tif", response_class=FileResponse, responses=_GEOTIFF)
def run_geotiff(run: RunId, opened: TheResult, wanted: ALayerRequest) -> FileResponse:
    """The same layer for other tools, in all of the map's cells."""
    made = views.layer(opened, wanted, whole=True)
    with tempfile.NamedTemporaryFile(suffix=".tif", delete=False) as file:
        path = Path(file.name)
    try:
        export.write(made, path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return FileResponse(
        path, media_type="image/tiff", filename=f"{run}-{made.name}.tif",
        background=BackgroundTask(path.unlink, missing_ok=True),
    )  # fmt: skip


def _knobs(
    noise_budget: schema.Number = Knobs.noise_budget,
    tradeoff: schema.Number = Knobs.tradeoff,
    clip: schema.Number = Knobs.clip,
    power: Annotated[str, Query(max_length=20, pattern=r"^(inf|\d{1,3}(\.\d{1,3})?)$")] = "2",
) -> Knobs:
    exponent = math.inf if power == "inf" else float(power)
    if exponent == 0:
        raise ConfigurationError("power: ν is greater than 0, or inf", "power")
    knobs = Knobs(noise_budget, tradeoff, clip, exponent)
    _ = knobs.schemes  # mechanisms, which check their own options
    return knobs


@looking.get(
    "/runs/{run}/seen", response_class=_Packed, responses=_holding(schema.SeenHeader, _PACKED)
)
def run_seen(
    service: TheService,
    opened: TheRun,
    knobs: Annotated[Knobs, Depends(_knobs)],
    user: Annotated[str, Query(max_length=200)],
    round_number: Annotated[int, Query(alias="round", ge=1, le=10**6)],
    summed: Annotated[bool, Query(alias="sum")] = False,
) -> _Packed:
    """What the server receives of one user in one round, and where attacks look."""
    body = views.seen(opened, user, round_number - 1, knobs, summed=summed)
    if comparable(opened.radio_map().grid):
        service.preparing.begin(opened.witness(), round_number - 1)
    return _Packed(body)


@looking.get(
    "/runs/{run}/sum", response_class=_Packed, responses=_holding(schema.SumHeader, _PACKED)
)
def run_sum(opened: TheSurvey, station: Annotated[str, Query(max_length=200)]) -> _Packed:
    """What was opened of one base station of a survey, at every point."""
    return _Packed(views.opened_sum(opened, station))


@looking.get("/mechanisms")
def mechanisms() -> list[schema.MechanismInfo]:
    """What a new run can be protected by, and the options of each as they are declared."""
    return [
        schema.MechanismInfo(name, views.title(kind), kind.needs_sums, views.declared_options(kind))
        for name, kind in MECHANISMS.items()
    ]


@looking.get("/tradeoff")
def tradeoff(service: TheService) -> schema.Tradeoff:
    """Map error against the strongest attack, for all runs that were audited."""
    return service.tradeoff()


# ---- doing


@doing.post("/runs", status_code=202)
def start_run(service: TheService, wanted: schema.NewRun) -> schema.RunSummary:
    """Train a run on this host, after those that wait already."""
    source, extras = Source(None, None, wanted.city, wanted.users, _CELL_SIZE), []
    if wanted.like is not None:
        other = service.library.open_run(wanted.like)
        if other.source is None:
            line = other.withheld or f"{wanted.like} does not say where its measurements are"
            raise ConfigurationError(line, "like")
        source, extras = other.source, model_options(other.config, other.source)
    plan = NewTraining(
        source, wanted.mechanism, wanted.options, wanted.rounds, wanted.seed, wanted.sums, extras
    )
    return service.start(plan)


@doing.post("/runs/{run}/pause")
def pause_run(service: TheService, run: RunId) -> schema.RunSummary:
    """Interrupt a run that was started here; it can go on."""
    return service.pause(run)


@doing.post("/runs/{run}/resume", status_code=202)
def resume_run(service: TheService, run: RunId) -> schema.RunSummary:
    """Let an interrupted run go on."""
    return service.resume(run)


@doing.post("/runs/{run}/stop")
def stop_run(service: TheService, run: RunId) -> schema.RunSummary:
    """End a run that was started here; what it learned stays."""
    return service.stop(run)


@doing.post("/runs/{run}/audit", status_code=202)
def audit_run(service: TheService, run: RunId) -> schema.JobInfo:
    """Attack a run in every way we know."""
    return service.audit(run).answer()


@doing.post("/runs/{run}/replicas", status_code=202)
def train_replicas(service: TheService, run: RunId) -> schema.JobInfo:
    """Train maps of resampled users, for the uncertainty."""
    return service.replicas(run).answer()
