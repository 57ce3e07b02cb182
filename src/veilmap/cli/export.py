"""`veilmap export`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veilmap import layers
from veilmap.cli.options import DATA, argument, numbers, option
from veilmap.cli.output import console, progress_bar, sentence, working, writable_folder
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError, VeilmapError
from veilmap.export import Written, check, endings, write
from veilmap.layers import Layer
from veilmap.layers.predictions import such_as
from veilmap.model.radio_map import RadioMap

if TYPE_CHECKING:
    from veilmap.runs.opened import OpenRun

_STATIONS = {"--station", "--bs", "--bs-latlon"}

# Each layer, and the options that mean something for it.
_OPTIONS = {
    "gain": {*_STATIONS, "--azimuth", "--beam-width"},
    "los": _STATIONS,
    "best-server": {*_STATIONS, "--azimuth", "--beam-width"},
    "heights": set[str](),
    "coverage": {"--data"},
    "uncertainty": {*_STATIONS, "--data", "--bootstrap", "--replicas", "--seed"},
}

# Base stations that are named in a line rather than where to find their names.
_LISTED = 10


def export(
    source: Path = argument("A map (.nc), or the folder of a run or survey.", metavar="MAP_OR_RUN"),
    out: Path = argument(f"File to write; its ending says as what: {', '.join(endings())}."),
    layer: str = option("gain", f"What to write: {', '.join(_OPTIONS)}."),
    station: list[str] | None = option(
        None,
        "Base station of the run by its id, with all that the map knows of it: offset,"
        " antenna, field. Several for best-server.",
    ),
    bs: list[str] | None = option(None, "Base station x,y,z in metres, without an offset."),
    bs_latlon: list[str] | None = option(None, "Base station latitude,longitude,z, degrees and m."),
    azimuth: list[float] | None = option(
        None, "Where its antenna looks, degrees clockwise from north (one a station)."
    ),
    beam_width: list[float] | None = option(None, "Its beam width in degrees; default: 65."),
    altitude: float = option(1.5, "Receivers' height above ground, in metres."),
    levels: str | None = option(None, "Contour levels such as -110,-100 (.geojson)."),
    points: Path | None = option(None, "CSV with x,y or latitude,longitude, perhaps z (.csv)."),
    bootstrap: int | None = option(None, "Replicas to train (uncertainty); 10 by default.", min=2),
    replicas: Path | None = option(None, "Folder that keeps replicas; those in it are reused."),
    data: Path | None = DATA,
    seed: int | None = option(None, "Of the replicas.", min=0),
) -> None:
    """Write a map for other tools: rasters, contour lines, values at points.

    coverage (links that cross a cell) and uncertainty (how far maps of resampled users
    disagree) are made from the users' measurements: only who holds those can make them, and of a
    run of aggregate their files are marked as a study, not for publication. The map of a survey
    knows its uncertainty by itself.
    """
    given = {
        "--station": station,
        "--bs": bs,
        "--bs-latlon": bs_latlon,
        "--azimuth": azimuth,
        "--beam-width": beam_width,
        "--data": data,
        "--bootstrap": bootstrap,
        "--replicas": replicas,
        "--seed": seed,
    }
    _check_options(layer, {name for name, value in given.items() if value not in (None, [])})
    used = (source, source / "radio_map.nc", data)
    if out.resolve() in {path.resolve() for path in used if path}:
        raise ConfigurationError(f"{out} is what the layer is made from; name another file")
    subject = NamedMap.opened(source, data)
    chosen = None if levels is None else numbers("--levels", levels)
    writable_folder(out.parent)
    check(out, subject.radio_map.grid.crs, levels=chosen, points=points)
    stations = subject.named(station, bs, bs_latlon).looking(azimuth, beam_width)
    if layer == "coverage":
        made = [layers.link_coverage(subject.radio_map.grid, _data(subject, data))]
    elif layer == "uncertainty":
        xyz, known = subject.only_one(layer, stations).first
        if subject.knows_deviations:
            made = [layers.deviation(subject.radio_map, xyz, altitude, station=known)]
        else:
            maps = _replicas(subject, bootstrap or 10, replicas, seed)
            made = [layers.spread(maps, xyz, altitude, station=known)]
    else:
        with working(f"computing {layer} …"):
            made = _predicted(subject, layer, stations, altitude)
    made = [_with_errors(subject, one, station) for one in made]
    if layer in _PRIVATE and subject.run and subject.run.study:
        made = [replace(one, long_name=f"{subject.run.study}: {one.long_name}") for one in made]
    for one, path in zip(made, (out, out.with_stem(f"{out.stem}-gain")), strict=False):
        with working(f"writing {path} …"):
            written = write(one, path, levels=chosen, points=points)
        _report(one, written, subject.knows_deviations)


def _with_errors(subject: "NamedMap", layer: Layer, ids: Sequence[str] | None) -> Layer:
    """The layer with the errors of its base stations' positions, where they are estimates."""
    errors = subject.run.station_errors if subject.run else {}
    shown = [errors.get(one, 0.0) for one in ids or subject.stations.ids or ()]
    if layer.name == "heights" or not any(shown):
        return layer
    said = {"base_station_error_m": shown[0] if len(shown) == 1 else shown}
    return replace(layer, attributes={**layer.attributes, **said})


def _check_options(layer: str, given: set[str]) -> None:
    if layer not in _OPTIONS:
        raise ConfigurationError(f"no layer {layer!r}; there are {', '.join(_OPTIONS)}")
    unused = sorted(given - _OPTIONS[layer])
    if unused:
        raise ConfigurationError(f"the layer {layer} has no use for {', '.join(unused)}")


@dataclass(frozen=True)
class ChosenStations:
    """Base stations, (B, 3) in the map's metres, with their ids.

    Those that are named by place have none, and perhaps azimuths and beam widths in degrees.
    """

    xyz: NDArray[np.float64]
    ids: tuple[str, ...] | None = None
    azimuths: Sequence[float] = ()
    beam_widths: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.xyz)

    @property
    def by_place(self) -> int:
        """How many the map does not know."""
        return len(self) if self.ids is None else 0

    @property
    def first(self) -> tuple[NDArray[np.float64], str | None]:
        """Where the first one is, and its id."""
        return self.xyz[0], self.ids[0] if self.ids else None

    def looking(
        self, azimuths: Sequence[float] | None, beam_widths: Sequence[float] | None
    ) -> "ChosenStations":
        """The same stations with antennas, one for each that is named by place, or none."""
        for flag, given in (("--azimuth", azimuths), ("--beam-width", beam_widths)):
            if len(given or ()) not in (0, self.by_place):
                raise ConfigurationError(
                    f"{flag} is given {len(given or ())} times for {self.by_place} base stations"
                    " named by place; give it once for each (nan where it is not known)"
                )
        if beam_widths and not azimuths:
            raise ConfigurationError("--beam-width needs --azimuth: where the beam looks")
        return replace(self, azimuths=azimuths or (), beam_widths=beam_widths or ())


@dataclass(frozen=True)
class NamedMap:
    """A map by its path, and its run where the path is a run's folder; a survey's is a map."""

    path: Path
    radio_map: RadioMap
    run: "OpenRun | None" = None

    @classmethod
    def opened(cls, path: Path, data: Path | None = None) -> "NamedMap":
        """The map of a file or of a finished run, on ``data`` if they are named."""
        from veilmap.runs.folders import open_result
        from veilmap.runs.opened import OpenRun

        if not path.is_dir():
            return cls(path, RadioMap.load(path))
        opened = open_result(path, study=True)
        run = OpenRun(path, data=data, study=True) if opened.kind == "run" else None
        return cls(path, (run or opened).finished_map(), run)

    @property
    def stations(self) -> ChosenStations:
        """The base stations of the run or, of a mere map, those that it has fields of."""
        if self.run:
            return ChosenStations(*self.run.stations)
        field = self.radio_map.field
        if field is None or not field.ids:
            return ChosenStations(np.empty((0, 3)))
        return ChosenStations(field.stations, tuple(map(str, field.ids)))

    @property
    def knows_deviations(self) -> bool:
        """Whether the map itself says how far readings lie from it."""
        return self.radio_map.field is not None and self.radio_map.field.deviations is not None

    def named(
        self, ids: Sequence[str] | None, bs: Sequence[str] | None, bs_latlon: Sequence[str] | None
    ) -> ChosenStations:
        """The base stations that options name."""
        if not ids:
            return ChosenStations(_places(self.radio_map.grid.crs, bs or (), bs_latlon or ()))
        if bs or bs_latlon:
            raise ConfigurationError(
                "--station knows an offset and a pattern, --bs does not: name all base stations by"
                " id, or all by place"
            )
        if not self.run and not self.stations.ids:
            raise ConfigurationError(
                f"{self.path} is a map, which does not say where its base stations are: name the"
                " run's folder instead, or the place with --bs x,y,z"
            )
        if not self.stations.ids:
            raise ConfigurationError(
                f"the run in {self.path} was not told where base stations are: name the place with"
                " --bs x,y,z"
            )
        return ChosenStations(self.stations.xyz[[self._row(one) for one in ids]], tuple(ids))

    def _row(self, wanted: str) -> int:
        """Which of the run's base stations has that id."""
        known = self.stations
        ids = known.ids or ()
        rows = [row for row, one in enumerate(ids) if one == wanted]
        if not rows:
            raise ConfigurationError(
                f"{self.path} has no base station {wanted!r}; {such_as([*dict.fromkeys(ids)])}"
            )
        if len(rows) > 1:
            place = ",".join(f"{round(value, 2):.12g}" for value in known.xyz[rows[0]].tolist())
            raise ConfigurationError(
                f"base station {wanted!r} of {self.path} is at {len(rows)} places: name one with"
                f" --bs, such as {place}"
            )
        return rows[0]

    def only_one(self, layer: str, stations: ChosenStations) -> ChosenStations:
        """The one base station of ``layer``, or how to name it."""
        known = self.stations
        if len(stations) == 1:
            return stations
        if len(stations) == 0 and len(known) == 1:
            return known
        if len(stations) == 0 and layer == "los" and len(np.unique(known.xyz, axis=0)) == 1:
            return ChosenStations(known.xyz[:1])  # the place alone decides
        way, such = "--bs x,y,z", ""
        if known.ids:
            way = f"--station ID or {way}"
            such = f"; the run has {len(known)}, such as {known.ids[0]}"
        raise ConfigurationError(f"{layer} needs one base station: name it with {way}{such}")


def _places(crs: str | None, bs: Sequence[str], bs_latlon: Sequence[str]) -> NDArray[np.float64]:
    from veilmap.geometry.coordinates import from_latitude_longitude

    stations = [numbers("--bs", text, 3) for text in bs]
    for text in bs_latlon:
        latitude, longitude, z = numbers("--bs-latlon", text, 3)
        try:
            xy = from_latitude_longitude(crs, [latitude, longitude])
        except VeilmapError as error:
            raise ConfigurationError(f"--bs-latlon: {error}") from None
        stations.append([*xy.tolist(), z])
    return np.array(stations, dtype=np.float64).reshape(-1, 3)


def _predicted(
    subject: NamedMap, layer: str, stations: ChosenStations, altitude: float
) -> list[Layer]:
    """Layers that the map alone decides."""
    if layer == "heights":
        return [layers.obstacle_heights(subject.radio_map)]
    if layer == "best-server":
        return _best_server(subject, stations, altitude)
    only = subject.only_one(layer, stations)
    xyz, station = only.first
    if layer == "los":
        return [layers.los_probability(subject.radio_map, xyz, altitude, station=station)]
    _say_isotropic(subject, only)
    azimuth, width = (given[0] if given else None for given in (only.azimuths, only.beam_widths))
    made = layers.gain(
        subject.radio_map, xyz, altitude, station=station, azimuth=azimuth, beam_width=width
    )
    return [made]


def _say_isotropic(subject: NamedMap, stations: ChosenStations) -> None:
    """A map that learned of antennas knows them by their stations' ids, not by places."""
    if subject.radio_map.antennas is not None and stations.by_place and not stations.azimuths:
        console.print(
            "Antennas are taken to be isotropic: --azimuth says where one looks, --station ID"
            " takes what the map knows of it"
        )


def _best_server(subject: NamedMap, stations: ChosenStations, altitude: float) -> list[Layer]:
    """Which station is heard best, and its gain."""
    where = "in the order of the command"
    if len(stations) == 0:
        listed = f"{subject.path}/base_stations.csv" if subject.run else "the survey's design"
        stations, where = subject.stations, f"as in {listed}"
    if len(stations) == 0:
        raise ConfigurationError(f"{subject.path} has no base stations: name them, --bs x,y,z each")
    if stations.ids and len(stations) <= _LISTED:
        where = f"in this order: {', '.join(stations.ids)}"
    console.print(f"{len(stations)} base stations, numbered from 0 {where}", highlight=False)
    _say_isotropic(subject, stations)
    xyz, ids, azimuths = stations.xyz, stations.ids, stations.azimuths or None
    widths = stations.beam_widths or None
    made = layers.best_server(
        subject.radio_map, xyz, altitude, ids=ids, azimuths=azimuths, beam_widths=widths
    )
    return list(made)


def _data(subject: NamedMap, data: Path | None) -> Measurements:
    """The measurements that the coverage is made from."""
    if subject.run:
        return subject.run.measurements
    if data is None:
        raise ConfigurationError("coverage needs measurements: name them with --data, or a run")
    return Measurements.load(data)


def _replicas(
    subject: NamedMap, count: int, folder: Path | None, seed: int | None
) -> list[RadioMap]:
    """Maps of resampled users, trained as the run was trained."""
    run = subject.run
    if run is None:
        raise ConfigurationError("uncertainty needs a run's folder: how was the map trained?")
    settings = run.config.settings()
    if run.promised:
        settings["model"] = replace(settings["model"], stations=run.stations)
    # The replicas know the antennas that the run knew, whatever the file has.
    links = replace(run.measurements, antennas=subject.radio_map.antennas)
    with progress_bar() as progress:
        task = progress.add_task("replicas", total=count, note="", visible=False)

        def on_replica(done: int) -> None:
            progress.update(task, completed=done, visible=True)

        grid = subject.radio_map.grid
        return layers.bootstrap(
            links, grid, count, seed=seed, on_replica=on_replica, folder=folder, **settings
        )


_PRIVATE = {
    "coverage": "It shows where users measured: keep it as they keep their measurements.",
    "uncertainty": "Its replicas used the measurements anew, beyond what the run promised users.",
}


def _report(layer: Layer, written: Written, from_map: bool) -> None:
    rows, columns = layer.grid.shape
    unit = "" if layer.unit == "1" else f" ({layer.unit})"
    console.print(
        f"Wrote {', '.join(map(str, written.files))}: {layer.long_name}{unit},"
        f" {rows} × {columns} cells of {layer.grid.cell_size:g} m"
    )
    private = () if from_map else (_PRIVATE.get(layer.name, ""),)
    for note in filter(None, (*written.notes, *private)):
        console.print(sentence(note))
