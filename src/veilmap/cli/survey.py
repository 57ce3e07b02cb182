"""`veilmap survey`: a radio map from one sum, with (ε, δ)."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from veilmap.cli.options import area_of, option
from veilmap.cli.output import console, sentence, writable_file, writable_folder
from veilmap.errors import ConfigurationError

if TYPE_CHECKING:
    from veilmap.surveys.design import Survey
    from veilmap.surveys.folder import SurveyFolder
    from veilmap.surveys.posterior import Buildings

BUILDINGS = option(
    None, "Public heights of what stands there, for laws by line of sight: .tif, .geojson, .gpkg."
)

app = typer.Typer(help="A radio map from one sum over all participants, with (ε, δ).")


@app.command(
    epilog="Example: `veilmap survey design --area 0,0,2000,2000 --stations sites.csv"
    " --participants 2000 --epsilon 2 --out survey.json`"
)
def design(
    area: str = option(..., "WEST,SOUTH,EAST,NORTH of the area, in metres."),
    stations: Path = option(..., "Public base stations, .csv with bs,x,y,z in the same metres."),
    participants: int = option(..., "How many take part, at least.", min=1),
    epsilon: float = option(..., "ε of the promise to every participant."),
    delta: float = option(1e-6, "δ of the promise."),
    heard: float | None = option(None, "Base stations that a participant hears; default: half."),
    spacing: float | None = option(None, "Metres between points; default: chosen."),
    level: float | None = option(None, "Nominal gain in dB 100 m from a station; default: -75."),
    crs: str | None = option(None, "Coordinate system of the metres, such as EPSG:32633."),
    name: str = option("survey", "Id of the survey.", "--id"),
    out: Path = option(Path("survey.json"), "File to write."),
) -> None:
    """Choose the points of a survey from public numbers, and say what to expect."""
    from veilmap.federation.public import read_stations
    from veilmap.surveys.design import Survey, stations_of

    writable_file(out)
    corners = area_of(area)
    known = stations_of(*read_stations(stations))
    if level is not None:
        known = tuple(replace(one, level_db=level) for one in known)
    survey = Survey.design(
        corners,
        known,
        participants=participants,
        epsilon=epsilon,
        delta=delta,
        heard=heard,
        spacing=spacing,
        crs=crs,
        id=name,
    )
    survey.save(out)
    _show(survey)
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
def show(what: Path = typer.Argument(help="A design, or the folder of a survey.")) -> None:
    """Say what a survey asks of its participants, what it promises and what it found."""
    from veilmap.surveys.design import Survey
    from veilmap.surveys.folder import SurveyFolder

    if what.is_dir():
        _show_result(SurveyFolder(what))
    else:
        _show(Survey.load(what))


def _public(survey: "Survey", path: Path | None) -> "Buildings | None":
    """Public heights on the grid of the survey's map."""
    from veilmap.scenes import buildings as public
    from veilmap.surveys.posterior import map_grid

    if path is None:
        return None
    grid = map_grid(survey)
    return grid, public.heights(path, grid)


def _show(survey: "Survey") -> None:
    from veilmap.cli import tables

    console.print(tables.survey_table(survey))


def _show_result(folder: "SurveyFolder") -> None:
    _show(folder.survey)
    console.print(f"{sentence(folder.promise.words)}.")
    console.print(f"The map is {folder.map_file}")
