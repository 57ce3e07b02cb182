"""`veilmap survey`: a radio map from one sum, with (ε, δ)."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from veilmap.cli.options import area_of, option
from veilmap.cli.output import console, sentence, writable_file, writable_folder
from veilmap.errors import ConfigurationError
from veilmap.surveys.surroundings import USUAL, Surroundings

if TYPE_CHECKING:
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
    )
    survey.save(out)
    _show(survey, surroundings)
    console.print(f"Wrote {out}")


@app.command(epilog="Example: `veilmap survey run links.parquet --survey survey.json --out town`")
def run(
    data: Path = typer.Argument(help="Everybody's measurements, .csv or .parquet."),
    survey: Path = option(..., "The design, as `survey design` writes it."),
    out: Path = option(..., "Folder to write; a survey is opened once."),
    after: list[Path] | None = option(
        None,
        "Folder of the survey that the same people took part in before: its ε, and of those"
        " before it, are counted in. Repeatable.",
    ),
    buildings: Path | None = BUILDINGS,
    seed: int | None = option(None, "Noise seed, for studies; with one nothing is promised."),
) -> None:
    """Survey everybody in a table on this machine, open the sum once, and make the map."""
    from veilmap.data.measurements import Measurements
    from veilmap.surveys.design import Survey
    from veilmap.surveys.folder import SurveyFolder
    from veilmap.surveys.surveying import survey as surveyed

    planned, folder = Survey.load(survey), SurveyFolder(out)
    earlier = [SurveyFolder(path) for path in after or ()]
    for one in earlier:
        _ = one.account  # a mistake shows before the work
    writable_folder(out)
    links = Measurements.load(data)
    if links.crs != planned.grid.crs and None not in (links.crs, planned.grid.crs):
        raise ConfigurationError(
            f"{data} is in {links.crs} and the survey in {planned.grid.crs}", "data"
        )
    public = _public(planned, buildings)
    opening = partial(folder.begin, after=earlier)
    result = surveyed(links, planned, seed, buildings=public, before_opening=opening)
    folder.save(result.opened, result.radio_map)
    _show_result(folder)


@app.command(
    "open",
    epilog="Examples: `veilmap survey open town`,"
    " `veilmap survey open town --buildings footprints.geojson`",
)
def open_(
    folder: Path = typer.Argument(help="The folder of a survey."),
    buildings: Path | None = BUILDINGS,
) -> None:
    """Make the map of an opened sum anew; the sum stays as it is, so this costs no privacy."""
    from veilmap.surveys.folder import SurveyFolder
    from veilmap.surveys.posterior import radio_map_of

    found = SurveyFolder(folder)
    radio_map_of(found.opened(), _public(found.survey, buildings)).save(found.map_file)
    _show_result(found)


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
    return stations_of(listed.xyz, listed.bs.tolist(), listed.antennas, listed.level_db)


def _show(survey: "Survey", surroundings: Surroundings) -> None:
    from veilmap.cli import tables

    console.print(tables.survey_table(survey, surroundings))


def _show_result(folder: "SurveyFolder", surroundings: Surroundings = USUAL) -> None:
    _show(folder.survey, surroundings)
    console.print(f"{sentence(folder.promise.words)}.")
    console.print(f"The map is {folder.map_file}")
