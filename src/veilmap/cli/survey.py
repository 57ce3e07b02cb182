"""`veilmap survey`: a radio map from one sum, with (ε, δ)."""

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import typer

from veilmap import collection
from veilmap.cli.contribute import AUTHORITY
from veilmap.cli.options import area_of, option
from veilmap.cli.output import (
    console,
    progress_bar,
    sentence,
    working,
    writable_file,
    writable_folder,
)
from veilmap.cli.reading import account
from veilmap.errors import ConfigurationError, PrivacyError
from veilmap.surveys.surroundings import USUAL, Surroundings

if TYPE_CHECKING:
    import httpx

    from veilmap.collection.client import Aggregators
    from veilmap.surveys.design import Station, Survey
    from veilmap.surveys.folder import SurveyFolder
    from veilmap.surveys.posterior import Buildings

BUILDINGS = option(
    None, "Public heights of what stands there, for laws by line of sight: .tif, .geojson, .gpkg."
)

HEARD = option(None, "Base stations that a participant hears; default: half.")
OCCUPIED = option(USUAL.occupied, "Share of the area on which participants are.")
READING_NOISE = option(
    USUAL.reading_noise_db, "Deviation in dB of readings at one place.", "--reading-noise"
)
SHADOWING = option(
    None, "Deviation in dB of places beside a distance law; default: the usual.", "--shadowing"
)

AFTER = option(
    None,
    "Folder of the survey that the same people took part in before: its ε, and of those"
    " before it, are counted in. Repeatable.",
)

app = typer.Typer(help="A radio map from one sum over all participants, with (ε, δ).")


@app.command(
    epilog="Example: `veilmap survey design --area 0,0,2000,2000 --stations sites.csv"
    " --participants 2000 --epsilon 2 --out survey.json`"
)
def design(
    area: str = option(..., "WEST,SOUTH,EAST,NORTH of the area, in metres."),
    stations: Path = option(
        ...,
        "Public base stations: bs, x, y, z in the same metres (or bs_latitude, bs_longitude), and"
        " perhaps azimuth, beam_width and level.",
    ),
    participants: int = option(..., "How many take part, at least.", min=1),
    epsilon: float = option(..., "ε of the promise to every participant."),
    delta: float = option(1e-6, "δ of the promise."),
    heard: float | None = HEARD,
    occupied: float = OCCUPIED,
    reading_noise_db: float = READING_NOISE,
    shadowing_db: float | None = SHADOWING,
    spacing: float | None = option(None, "Metres between points; default: chosen."),
    level: float | None = option(
        None, "Nominal gain in dB 100 m from a station; default: its own, or -75."
    ),
    crs: str | None = option(None, "Coordinate system of the metres, such as EPSG:32633."),
    aggregators: int = option(
        1, "1: one machine has all measurements; 2: two aggregators, see publish.", min=1, max=2
    ),
    name: str = option("survey", "Id of the survey.", "--id"),
    out: Path = option(Path("survey.json"), "File to write."),
) -> None:
    """Choose the points of a survey from public numbers, and say what to expect."""
    from veilmap.surveys.design import Survey

    writable_file(out)
    corners = area_of(area)
    surroundings = Surroundings(heard, occupied, reading_noise_db, shadowing_db)
    known = known_stations(stations, crs)
    if level is not None:
        known = tuple(replace(one, level_db=level) for one in known)
    with working("choosing the points …"):
        survey = Survey.design(
            corners,
            known,
            participants=participants,
            epsilon=epsilon,
            delta=delta,
            surroundings=surroundings,
            spacing=spacing,
            crs=crs,
            id=name,
            aggregators=aggregators,
        )
    survey.save(out)
    _show(survey, surroundings)
    console.print(f"Wrote {out}")


@app.command(epilog="Example: `veilmap survey run links.parquet --survey survey.json --out town`")
def run(
    data: Path = typer.Argument(
        help="Everybody's measurements, .csv or .parquet, or logs of a known app."
    ),
    survey: Path = option(..., "The design, as `survey design` writes it."),
    out: Path = option(..., "Folder to write; a survey is opened once."),
    after: list[Path] | None = AFTER,
    buildings: Path | None = BUILDINGS,
    seed: int | None = option(None, "Noise seed, for studies; with one nothing is promised."),
) -> None:
    """Survey everybody in a table on this machine, open the sum once, and make the map."""
    from veilmap.collection.readings import everybodys
    from veilmap.surveys.design import Survey
    from veilmap.surveys.folder import SurveyFolder
    from veilmap.surveys.surveying import survey as surveyed

    planned, folder = Survey.load(survey), SurveyFolder(out)
    earlier = [SurveyFolder(path) for path in after or ()]
    for one in earlier:
        _ = one.account  # a mistake shows before the work
    writable_folder(out)
    if planned.aggregators > 1:
        raise ConfigurationError(
            f"{survey} has noise for two aggregators; for one machine that has everything, design"
            " it with --aggregators 1",
            "survey",
        )
    links = everybodys(data, planned, told=account)
    if links.crs != planned.grid.crs and None not in (links.crs, planned.grid.crs):
        raise ConfigurationError(
            f"{data} is in {links.crs} and the survey in {planned.grid.crs}", "data"
        )
    public = _public(planned, buildings)
    opening = partial(folder.begin, after=earlier)
    with working("adding everybody up and making the map …"):
        result = surveyed(links, planned, seed, buildings=public, before_opening=opening)
    folder.save(result.opened, result.radio_map)
    _show_result(folder)


@app.command(
    epilog="Example: `veilmap survey publish survey.json --leader leader/public.json"
    " --helper helper/public.json --closes 2026-12-01T18:00Z --most 5000 --out task.json`"
)
def publish(
    survey: Path = typer.Argument(help="The design, made with --aggregators 2."),
    leader: Path = option(..., "public.json of the leader's folder."),
    helper: Path = option(..., "public.json of the helper's folder."),
    closes: str = option(..., "When the last reports are taken, such as 2026-12-01T18:00Z."),
    opens: str | None = option(None, "When the first ones are; default: now."),
    most_reports: int | None = option(
        None, "Reports to take at most; default: ten times the least.", "--most"
    ),
    open_to_all: int | None = option(
        None,
        "Let anybody take part whose device does so many bits of work, 16 being a second or less;"
        " default: by invitation.",
        min=1,
        max=30,
    ),
    pairing_hours: float = option(24.0, "After how many hours half a report is deleted."),
    proofs: bool = option(
        True, "Ask for proofs that contributions are no longer than the design allows."
    ),
    out: Path = option(Path("task.json"), "File to write, for both aggregators."),
    key: Path = option(Path("collector.key"), "File for the key that opens the survey."),
) -> None:
    """Fix who adds up a survey of real participants, when, and who may take part.

    Both aggregators and all participants name reports by the digest of what this writes.
    """
    collection.require()
    from veilmap.collection.admission import ProofOfWork
    from veilmap.collection.folder import PublicFile, task_between
    from veilmap.collection.keys import SigningKey
    from veilmap.surveys.design import Survey

    writable_file(out, key)
    if out.resolve() == key.resolve():
        raise ConfigurationError(f"{out} cannot hold task and key both: name two files", "key")
    for file in (out, key):
        if file.exists():
            raise ConfigurationError(f"{file} is there already: name another file")
    first, second = PublicFile.load(leader, "leader"), PublicFile.load(helper, "helper")
    admission = first.issuer if open_to_all is None else ProofOfWork(open_to_all)
    if admission is None:
        raise ConfigurationError(f"{leader} names no issuer of invitations", "leader")
    own = SigningKey.new()
    task = task_between(
        Survey.load(survey), first, second, own, opens=opens or None, closes=closes,
        most_reports=most_reports, admission=admission, pairing_hours=pairing_hours, proofs=proofs,
    )  # fmt: skip
    own.save(key)
    task.save(out)
    console.print(
        f"Wrote {out} for both aggregators, and {key}, which opens the survey: keep it private.\n"
        f"Tell participants its digest by a way of their own: {task.digest}",
        soft_wrap=True,
    )


@app.command(epilog="Example: `veilmap survey status --survey task.json`")
def status(
    survey: Path = option(..., "The survey's task, as `publish` writes it."),
    key: Path = option(Path("collector.key"), "The key that `publish` wrote."),
    authority: Path | None = AUTHORITY,
    heard: float | None = HEARD,
    occupied: float = OCCUPIED,
    reading_noise_db: float = READING_NOISE,
    shadowing_db: float | None = SHADOWING,
) -> None:
    """Say how many take part in a survey so far, how long it goes on, and what to expect now."""
    collection.require()
    from veilmap.cli import tables
    from veilmap.collection.client import Aggregators
    from veilmap.collection.collector import Collector
    from veilmap.collection.connection import connected
    from veilmap.collection.keys import SigningKey
    from veilmap.collection.task import ROLES, Task
    from veilmap.surveys.planning import expected

    surroundings = Surroundings(heard, occupied, reading_noise_db, shadowing_db)
    task = Task.load(survey)
    with connected(authority) as client:
        collector = Collector(Aggregators(client, task), SigningKey.load(key))
        found = [collector.standing(role) for role in ROLES]
    there = min(one.added for one in found)
    error = "Nothing can be expected yet."
    if there:
        what = expected(replace(task.survey, participants=there), surroundings)
        error = f"With those in the sum now, expect an error of {what.error_db:.1f} dB."
    seconds = (task.closes_at - datetime.now(UTC)).total_seconds()
    left = f"{_in_words(seconds)} left" if seconds > 0 else f"over since {task.closes}"
    console.print(tables.standing_table(task, found, left, error))


def _in_words(seconds: float) -> str:
    """A time as people say it."""
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


@app.command(
    "open",
    epilog="Examples: `veilmap survey open town --survey task.json --key collector.key`,"
    " `veilmap survey open town --leader https://a.example.org --helper https://b.example.org`,"
    " `veilmap survey open town --buildings footprints.geojson`",
)
def open_(
    folder: Path = typer.Argument(help="The folder of a survey, or a new one for --survey."),
    survey: Path | None = option(
        None, "The task of a survey of real participants: have its aggregators open it."
    ),
    leader: str | None = option(None, "Address of the leader, in place of --survey."),
    helper: str | None = option(None, "Address of the helper, which must serve the same task."),
    key: Path = option(Path("collector.key"), "The key that `publish` wrote."),
    early: bool = option(False, "End the survey now, before its time is over.", "--early"),
    after: list[Path] | None = AFTER,
    authority: Path | None = AUTHORITY,
    buildings: Path | None = BUILDINGS,
) -> None:
    """Join what two aggregators opened, or make the map of an opened sum anew.

    A survey is opened once. What was interrupted goes on with the same noise, and a map made anew
    is post-processing: neither costs privacy.
    """
    from veilmap.surveys.folder import SurveyFolder
    from veilmap.surveys.posterior import radio_map_of

    found = SurveyFolder(folder)
    if survey is None and leader is None and helper is None:
        with working("making the map …"):
            radio_map_of(found.opened(), _public(found.survey, buildings)).save(found.map_file)
        _show_result(found)
        return
    collection.require()
    from veilmap.collection.collector import Collector, open_into
    from veilmap.collection.connection import connected
    from veilmap.collection.keys import SigningKey

    earlier = tuple(SurveyFolder(path) for path in after or ())
    for one in earlier:
        _ = one.account
    writable_folder(folder)
    with connected(authority) as client:
        collector = Collector(_aggregators(client, survey, leader, helper), SigningKey.load(key))
        public = _public(collector.task.survey, buildings)
        with working("closing the survey …") as change:
            open_into(
                found, collector, early=early, after=earlier, buildings=public,
                waiting=lambda added: change(f"adding reports: {added:,} so far …"),
            )  # fmt: skip
    _show_result(found)


def _aggregators(
    client: "httpx.Client", survey: Path | None, leader: str | None, helper: str | None
) -> "Aggregators":
    """The aggregators of a task, out of its file or as they publish it."""
    from veilmap.collection.client import Aggregators
    from veilmap.collection.task import Task

    if survey is not None:
        return Aggregators(client, Task.load(survey))
    if leader is None or helper is None:
        raise ConfigurationError("name both aggregators, or the file of their task", "survey")
    found = Aggregators.of(client, leader)
    if helper.rstrip("/") != found.task.helper:
        raise ConfigurationError(
            f"the task's helper is {found.task.helper}, not {helper}", "helper"
        )
    return found


@app.command(
    epilog="Examples: `veilmap survey demo`, `veilmap survey demo --out town --people 500`"
)
def demo(
    out: Path = option(Path("veilmap-survey-demo"), "Folder to write."),
    people: int = option(200, "How many people take part.", min=20, max=5000),
    epsilon: float = option(8.0, "ε of the promise to every participant."),
    seed: int = option(0, "Which city and people; the noise is the operating system's."),
) -> None:
    """Play a survey of simulated people here: two aggregators, TLS, invitations, a map."""
    collection.require()
    from veilmap.cli import tables
    from veilmap.collection.demo import play
    from veilmap.surveys.folder import SurveyFolder

    writable_folder(out)
    if out.exists() and any(out.iterdir()):
        raise ConfigurationError(f"{out} is not empty: name a new folder", "out")
    with progress_bar() as bar:
        asked = bar.add_task("contributing", total=people, note="starting two aggregators")
        result = play(
            out, people, epsilon, seed,
            step=lambda note, done: bar.update(asked, completed=done, note=note),
        )  # fmt: skip
    console.print(tables.collected_table(result))
    _show_result(SurveyFolder(out / "town"))
    console.print(f"Look at it: veilmap serve {out / 'town'}", soft_wrap=True)


@app.command(epilog="Examples: `veilmap survey show survey.json`, `veilmap survey show town`")
def show(
    what: Path = typer.Argument(help="A design, or the folder of a survey."),
    heard: float | None = HEARD,
    occupied: float = OCCUPIED,
    reading_noise_db: float = READING_NOISE,
    shadowing_db: float | None = SHADOWING,
) -> None:
    """Say what a survey asks of its participants, what it promises, and what to expect of it."""
    from veilmap.surveys.design import Survey
    from veilmap.surveys.folder import SurveyFolder

    surroundings = Surroundings(heard, occupied, reading_noise_db, shadowing_db)
    if what.is_dir():
        _show_result(SurveyFolder(what), surroundings)
    else:
        _show(Survey.load(what), surroundings)


def _public(survey: "Survey", path: Path | None) -> "Buildings | None":
    """Public heights on the grid of the survey's map."""
    from veilmap.scenes import buildings as public
    from veilmap.surveys.posterior import map_grid

    if path is None:
        return None
    grid = map_grid(survey)
    return grid, public.heights(path, grid)


def known_stations(path: Path, crs: str | None = None) -> "tuple[Station, ...]":
    """The base stations of a file, with their beams and levels as far as it has them."""
    from veilmap.ingest import read_stations
    from veilmap.surveys.design import stations_of

    listed = read_stations(path, crs)
    estimated = int(np.isfinite(listed.error_m).sum())
    if estimated:
        raise PrivacyError(
            f"{path} has {estimated} positions that are estimates from measurements, and a survey's"
            " base stations are published: list public positions, or remove the column error_m if"
            " no participant's measurements went into them"
        )
    return stations_of(listed.xyz, listed.bs.tolist(), listed.antennas, listed.level_db)


def _show(survey: "Survey", surroundings: Surroundings) -> None:
    from veilmap.cli import tables

    console.print(tables.survey_table(survey, surroundings))


def _show_result(folder: "SurveyFolder", surroundings: Surroundings = USUAL) -> None:
    _show(folder.survey, surroundings)
    console.print(f"{sentence(folder.promise.words)}.")
    console.print(f"The map is {folder.map_file}")
