"""`veilmap export`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from veilmap import layers
from veilmap.cli.options import console, progress_bar, writable_folder
from veilmap.cli.stations import ChosenStations, NamedMap, named, numbers, only_one
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.export import ENDINGS, Written, check, write
from veilmap.layers import Layer

# Each layer, and the options that mean something for it.
_OPTIONS = {
    "gain": {"--station", "--bs", "--bs-latlon", "--azimuth", "--beam-width"},
    "los": {"--station", "--bs", "--bs-latlon"},
    "best-server": {"--station", "--bs", "--bs-latlon", "--azimuth", "--beam-width"},
    "heights": set[str](),
    "coverage": {"--data"},
    "uncertainty": {
        "--station",
        "--bs",
        "--bs-latlon",
        "--data",
        "--bootstrap",
        "--replicas",
        "--seed",
    },
}

# Base stations that are named in a line rather than where to find their names.
_LISTED = 10


@dataclass(frozen=True)
class _Beams:
    """Antennas that options describe, one for each base station named by place, or none."""

    azimuths: list[float]
    widths: list[float]

    def check(self, stations: int) -> None:
        """Refuse another number of antennas than of base stations."""
        for option, given in (("--azimuth", self.azimuths), ("--beam-width", self.widths)):
            if len(given) not in (0, stations):
                raise ConfigurationError(
                    f"{option} is given {len(given)} times for {stations} base stations"
                    " named by place; give it once for each (nan where it is not known)"
                )
        if self.widths and not self.azimuths:
            raise ConfigurationError("--beam-width needs --azimuth: where the beam looks")


def export(
    source: Annotated[
        Path, typer.Argument(metavar="MAP_OR_RUN", help="A map (.nc), or the folder of a run.")
    ],
    out: Annotated[
        Path,
        typer.Argument(help=f"File to write; its ending says as what: {', '.join(ENDINGS)}."),
    ],
    layer: Annotated[str, typer.Option(help=f"What to write: {', '.join(_OPTIONS)}.")] = "gain",
    station: Annotated[
        list[str] | None,
        typer.Option(
            help="Base station of the run by its id, with all that the map knows of it: offset,"
            " antenna, field. Several for best-server."
        ),
    ] = None,
    bs: Annotated[
        list[str] | None,
        typer.Option(help="Base station x,y,z in metres, without an offset; several likewise."),
    ] = None,
    bs_latlon: Annotated[
        list[str] | None,
        typer.Option(help="Base station latitude,longitude,z in degrees and metres."),
    ] = None,
    azimuth: Annotated[
        list[float] | None,
        typer.Option(help="Where its antenna looks, degrees clockwise from north (one a station)."),
    ] = None,
    beam_width: Annotated[
        list[float] | None,
        typer.Option(help="Its beam's width in degrees (one a station); 65 by default."),
    ] = None,
    altitude: Annotated[
        float, typer.Option(help="Receivers' height above ground, in metres.")
    ] = 1.5,
    levels: Annotated[
        str | None, typer.Option(help="Contour levels such as -110,-100 (.geojson).")
    ] = None,
    points: Annotated[
        Path | None,
        typer.Option(help="CSV with x,y or latitude,longitude, and perhaps z (for a .csv)."),
    ] = None,
    bootstrap: Annotated[
        int | None, typer.Option(min=2, help="Replicas to train (uncertainty); 10 by default.")
    ] = None,
    replicas: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps the replicas; those there are not trained again."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="The users' measurements; by default where the run says they are."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the replicas.")] = None,
) -> None:
    """Write a map for other tools: rasters, contour lines, values at points.

    coverage (links that cross a cell) and uncertainty (how far maps of resampled users
    disagree) are made from the users' measurements: only who holds those can make them, and of a
    run of aggregate their files are marked as a study, not for publication.
    """
    given = {"--station": station, "--bs": bs, "--bs-latlon": bs_latlon, "--data": data,
             "--bootstrap": bootstrap, "--replicas": replicas, "--seed": seed,
             "--azimuth": azimuth, "--beam-width": beam_width}  # fmt: skip
    _check_options(layer, {name for name, value in given.items() if value not in (None, [])})
    _check_keeps_inputs(out, source, source / "radio_map.nc", data)
    subject = NamedMap.opened(source, data)
    chosen = None if levels is None else numbers("--levels", levels)
    writable_folder(out.parent)
    check(out, subject.radio_map.grid.crs, levels=chosen, points=points)
    stations = named(subject, station or [], bs or [], bs_latlon or [])
    if layer == "coverage":
        made = [layers.link_coverage(subject.radio_map.grid, _data(subject, layer, data))]
    elif layer == "uncertainty":
        only = only_one(subject, layer, stations)
        made = [_uncertainty(subject, only, altitude, bootstrap or 10, replicas, data, seed)]
    else:
        beams = _Beams(azimuth or [], beam_width or [])
        made = _predicted(subject, layer, stations, beams, altitude)
    if layer in _PRIVATE and subject.run and subject.run.study:
        made = [replace(one, long_name=f"{subject.run.study}: {one.long_name}") for one in made]
    for one, path in zip(made, (out, out.with_stem(f"{out.stem}-gain")), strict=False):
        _report(one, write(one, path, levels=chosen, points=points))


def _check_options(layer: str, given: set[str]) -> None:
    if layer not in _OPTIONS:
        raise ConfigurationError(f"no layer {layer!r}; there are {', '.join(_OPTIONS)}")
    unused = sorted(given - _OPTIONS[layer])
    if unused:
        raise ConfigurationError(f"the layer {layer} has no use for {', '.join(unused)}")


def _check_keeps_inputs(out: Path, *inputs: Path | None) -> None:
    if out.resolve() in {path.resolve() for path in inputs if path is not None}:
        raise ConfigurationError(
            f"{out} is what the layer is made from; name another file to write"
        )


def _predicted(
    subject: NamedMap, layer: str, stations: ChosenStations, beams: _Beams, altitude: float
) -> list[Layer]:
    """Layers that the map alone decides."""
    if layer == "heights":
        return [layers.obstacle_heights(subject.radio_map)]
    if layer == "best-server":
        return _best_server(subject, stations, beams, altitude)
    only = only_one(subject, layer, stations)
    xyz, station = only.first
    if layer == "los":
        return [layers.los_probability(subject.radio_map, xyz, altitude, station=station)]
    beams.check(only.by_place)
    azimuth, width = (given[0] if given else None for given in (beams.azimuths, beams.widths))
    _say_isotropic(subject, only, beams)
    made = layers.gain(
        subject.radio_map, xyz, altitude, station=station, azimuth=azimuth, beam_width=width
    )
    return [made]


def _say_isotropic(subject: NamedMap, stations: ChosenStations, beams: _Beams) -> None:
    """A map that learned of antennas knows them by their stations' ids, not by places."""
    if subject.radio_map.antennas is not None and stations.by_place and not beams.azimuths:
        console.print(
            "Antennas are taken to be isotropic: --azimuth says where one looks, --station ID"
            " takes what the map knows of it"
        )


def _best_server(
    subject: NamedMap, stations: ChosenStations, beams: _Beams, altitude: float
) -> list[Layer]:
    """Which station is heard best, and its gain."""
    beams.check(stations.by_place)
    where = "in the order of the command"
    if len(stations) == 0:
        stations, where = subject.stations(), f"as in {subject.path}/base_stations.csv"
    if len(stations) == 0:
        raise ConfigurationError(
            f"{subject.path} names no base stations: name them, --bs x,y,z for each"
        )
    if stations.ids and len(stations) <= _LISTED:
        where = f"in this order: {', '.join(stations.ids)}"
    console.print(f"{len(stations)} base stations, numbered from 0 {where}", highlight=False)
    _say_isotropic(subject, stations, beams)
    made = layers.best_server(
        subject.radio_map, stations.xyz, altitude, ids=stations.ids,
        azimuths=beams.azimuths or None, beam_widths=beams.widths or None,
    )  # fmt: skip
    return list(made)


def _data(subject: NamedMap, layer: str, data: Path | None) -> Measurements:
    """The measurements that a layer is made from."""
    if subject.run:
        return subject.run.measurements
    if data is None:
        raise ConfigurationError(
            f"{layer} is made from measurements: name them with --data, or give a run's folder"
        )
    return Measurements.load(data)


def _uncertainty(
    subject: NamedMap,
    stations: ChosenStations,
    altitude: float,
    count: int,
    folder: Path | None,
    data: Path | None,
    seed: int | None,
) -> Layer:
    """Train replicas as the run was trained, and see how far they disagree."""
    run = subject.run
    if run is None:
        raise ConfigurationError(
            "uncertainty needs a run's folder, which says how the map was trained"
        )
    settings = run.config.settings()
    if run.promised:
        settings["model"] = replace(settings["model"], stations=run.stations)
    # The replicas know the antennas that the run knew, whatever the file has.
    links = replace(_data(subject, "uncertainty", data), antennas=subject.radio_map.antennas)
    with progress_bar() as progress:
        task = progress.add_task("replicas", total=count, note="", visible=False)

        def on_replica(done: int) -> None:
            progress.update(task, completed=done, visible=True)

        maps = layers.bootstrap(
            links,
            subject.radio_map.grid,
            count,
            seed=seed,
            on_replica=on_replica,
            folder=folder,
            **settings,
        )
    xyz, station = stations.first
    return layers.spread(maps, xyz, altitude, station=station)


_PRIVATE = {
    "coverage": "It shows where users measured: keep it as they keep their measurements.",
    "uncertainty": "Its replicas used the measurements anew, beyond what the run promised users.",
}


def _report(layer: Layer, written: Written) -> None:
    rows, columns = layer.grid.shape
    unit = "" if layer.unit == "1" else f" ({layer.unit})"
    console.print(
        f"Wrote {', '.join(map(str, written.files))}: {layer.long_name}{unit},"
        f" {rows} × {columns} cells of {layer.grid.cell_size:g} m"
    )
    for note in (*written.notes, *([_PRIVATE[layer.name]] if layer.name in _PRIVATE else [])):
        console.print(note[0].upper() + note[1:])
