"""`veilmap data`: from tables of any shape to measurements."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from veilmap.cli.options import argument, option
from veilmap.cli.output import (
    console,
    progress_bar,
    working,
    writable_file,
    writable_folder,
    write_json,
)
from veilmap.cli.reading import account, reads_a_table
from veilmap.errors import ConfigurationError

if TYPE_CHECKING:
    from veilmap.ingest import Options

app = typer.Typer(help="Check tables of measurements and convert them.", no_args_is_help=True)

_PICTURES = (".png", ".pdf", ".svg")
_TABLES = (".parquet", ".csv")


@app.command(
    epilog="Example: `veilmap data check walk.csv --column gain=rsrp --quantity rsrp"
    " --stations sites.csv --split-gap 60 --picture walk.png`"
)
@reads_a_table
def check(
    reading: "Options",
    file: Path = argument(
        "The table: .csv, .tsv, .txt (or in .gz, .zip), .json, .parquet or .gpkg."
    ),
    picture: Path | None = option(None, "Also draw users, stations and gains: .png, .pdf, .svg."),
    json_out: Path | None = option(None, "Also write all figures to this file.", "--json"),
) -> None:
    """Show what a table holds, what would be left out of it, and what looks wrong."""
    from veilmap import figures, ingest
    from veilmap.cli import tables

    if picture is not None:
        _check_ending("--picture", picture, _PICTURES)
    writable_file(picture, json_out)
    with working(f"reading {file} …"):
        found = ingest.read(file, replace(reading, on_bad="drop"))
        result = ingest.check(found)
    console.print(tables.check_table(result))
    console.print(tables.coverage_table(result))
    unexpected = sum(one.count for one in result.left_out if not one.expected)
    if unexpected and reading.on_bad != "drop":
        console.print(f"{unexpected:,} rows cannot be used; convert drops them with --drop-bad")
    console.print(tables.doubts(result) if result.doubts else "Nothing looks wrong.")
    if picture is not None:
        drawn = figures.maps.survey(found.measurements, file.name)
        console.print(f"Wrote {figures.save(drawn, picture)}")
    write_json(result.as_dict(), json_out)


@app.command(
    epilog="Examples: `veilmap data convert log.csv links.parquet` for the log of a known app,"
    " `veilmap data convert walk.csv links.parquet --column gain=rsrp --quantity rsrp"
    " --stations sites.csv --split-gap 60`, then `veilmap train links.parquet`"
)
@reads_a_table
def convert(
    reading: "Options",
    file: Path = argument(
        "The table: .csv, .tsv, .txt (or in .gz, .zip), .json, .parquet or .gpkg."
    ),
    out: Path = argument("Measurements: .parquet, or .csv without CRS and antennas."),
) -> None:
    """Write a table's measurements in the one shape that all other commands read."""
    from veilmap import ingest

    _check_ending("OUT", out, _TABLES)
    if out.absolute() == file.absolute():
        raise ConfigurationError(f"{out} is the table itself; name another file to write")
    writable_file(out)
    with working(f"reading {file} …"):
        found = ingest.read(file, reading)
        data = found.measurements
        data.save(out)
    account(found)
    if data.antennas is not None and out.suffix.lower() == ".csv":
        console.print("A .csv has no place for antennas; a .parquet keeps them")
    where = f" in {data.crs}" if data.crs else ""
    console.print(
        f"Wrote {len(data):,} of {found.rows:,} rows, {len(data.users):,} users{where}, to {out}"
    )


@app.command(
    epilog="Example: `veilmap data make crowd --users 100000` then"
    " `veilmap train crowd --mechanism aggregate --epsilon 1 --delta 1e-7`"
)
def make(
    folder: Path = argument("Where to write .parquet files."),
    users: int = option(10_000, "How many measure.", min=1),
    links: int = option(200, "Links of each.", min=1),
    city: int = option(0, "Which synthetic city.", min=0),
    size: float = option(300.0, "Side of the city, in metres."),
    stations: int = option(200, "Base stations.", min=1),
    buildings: int = option(16, "Buildings.", min=0),
    reach: float | None = option(None, "Largest distance of a user's base stations in metres."),
    seed: int | None = option(None, "Of the measurements; by default twice the city's.", min=0),
    per_file: int = option(1000, "Users of each file.", min=1),
    resume: bool = option(False, "Go on after the last file.", "--resume"),
) -> None:
    """Let a crowd of any size measure a synthetic city, a file for some users at a time."""
    from veilmap.data.folders import save_parts
    from veilmap.federation.public import write_stations
    from veilmap.scenes.scene import Scene

    there = sorted(folder.glob("*.parquet"))
    if there and not resume:
        raise ConfigurationError(f"{folder} holds measurements already; --resume goes on with them")
    writable_folder(folder)
    scene = Scene.synthetic(city, size=size, base_stations=stations, buildings=buildings)
    # What is public of the city, for trainings that may not take it from users' measurements.
    known = scene.base_stations, tuple(range(len(scene.base_stations)))
    first, total = len(there) if resume else 0, -(-users // per_file)
    parts = scene.measure_in_parts(
        users,
        seed=2 * city if seed is None else seed,
        users_per_part=per_file,
        first_part=first,
        links_per_user=links,
        reach=reach,
    )
    with progress_bar() as progress:
        # Not shown before a file is done: a mistake should leave one line and no bar.
        task = progress.add_task(
            "measuring", total=total, completed=first, note="files", visible=False
        )
        for _ in save_parts(parts, folder, first=first):
            progress.update(task, advance=1, visible=True)
    write_stations(known, folder / "base_stations.csv")
    console.print(f"Wrote {users:,} users with {users * links:,} links to {folder}/")
    west, east, south, north = scene.grid.extent
    console.print(
        f"The city is public: --area {west:g},{south:g},{east:g},{north:g}"
        f" --stations {folder}/base_stations.csv",
        soft_wrap=True,
    )


@app.command(epilog="Example: `veilmap data split links.parquet crowd` then `veilmap train crowd`")
def split(
    file: Path = argument("Measurements, .csv or .parquet."),
    folder: Path = argument("Where to write .parquet files."),
    per_file: int = option(1000, "Users of each file.", min=1),
) -> None:
    """Part measurements by user, so that training reads some users at a time."""
    from veilmap.data.folders import parts_of, save_parts
    from veilmap.data.measurements import Measurements

    if any(folder.glob("*.parquet")):
        raise ConfigurationError(f"{folder} holds measurements already; name another folder")
    writable_folder(folder)
    with working(f"dividing {file} …"):
        data = Measurements.load(file)
        parts = list(save_parts(parts_of(data, per_file), folder))
    console.print(f"Wrote {len(data.users):,} users in {len(parts):,} files to {folder}/")


def _check_ending(what: str, path: Path, endings: Sequence[str]) -> None:
    if path.suffix.lower() not in endings:
        raise ConfigurationError(f"{what} ends in {' or '.join(endings)}, not {path.name!r}")
