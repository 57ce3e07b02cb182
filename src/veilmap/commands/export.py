"""`veilmap export`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from veilmap import exporting, layers
from veilmap.commands._common import console, measurements_behind, progress_bar, writable_folder
from veilmap.errors import VeilmapError
from veilmap.layers import Layer
from veilmap.measurements import Measurements
from veilmap.radiomap import RadioMap

# Each layer, and the options that mean something for it.
_OPTIONS = {
    "gain": {"--bs", "--bs-latlon", "--azimuth", "--beam-width"},
    "los": {"--bs", "--bs-latlon"},
    "best-server": {"--bs", "--bs-latlon", "--azimuth", "--beam-width"},
    "heights": set[str](),
    "coverage": {"--data"},
    "uncertainty": {"--bs", "--bs-latlon", "--data", "--bootstrap", "--seed"},
}


@dataclass(frozen=True)
class _Subject:
    """What was named: a map, and the folder of its run if it was one."""

    path: Path
    radio_map: RadioMap
    run: bool


@dataclass(frozen=True)
class _Beams:
    """Antennas that options describe, one for each named base station; none: isotropic."""

    azimuths: list[float]
    widths: list[float]

    def check(self, stations: int) -> None:
        """Refuse another number of antennas than of base stations."""
        for option, given in (("--azimuth", self.azimuths), ("--beam-width", self.widths)):
            if len(given) not in (0, stations):
                raise VeilmapError(
                    f"{option} is given {len(given)} times for {stations} named base stations;"
                    " give it once for each (nan where it is not known)"
                )
        if self.widths and not self.azimuths:
            raise VeilmapError("--beam-width needs --azimuth: where the beam looks")


def export(
    source: Annotated[
        Path, typer.Argument(metavar="MAP_OR_RUN", help="A map (.nc), or the folder of a run.")
    ],
    out: Annotated[
        Path,
        typer.Argument(
            help=f"File to write; its ending says as what: {', '.join(exporting.ENDINGS)}."
        ),
    ],
    layer: Annotated[str, typer.Option(help=f"What to write: {', '.join(_OPTIONS)}.")] = "gain",
    bs: Annotated[
        list[str] | None,
        typer.Option(help="Base station x,y,z in metres; several for best-server."),
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
    data: Annotated[
        Path | None,
        typer.Option(help="The users' measurements; by default where the run says they are."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the replicas.")] = None,
) -> None:
    """Write a map for other tools: rasters, contour lines, values at points.

    coverage (links that cross a cell) and uncertainty (how far maps of resampled users
    disagree) are made from the users' measurements: only who holds those can make them.
    """
    given = {"--bs": bs, "--bs-latlon": bs_latlon, "--data": data, "--bootstrap": bootstrap,
             "--seed": seed, "--azimuth": azimuth, "--beam-width": beam_width}  # fmt: skip
    _check_options(layer, {name for name, value in given.items() if value not in (None, [])})
    _check_keeps_inputs(out, source, source / "radio_map.nc", data)
    subject = _opened(source)
    chosen = None if levels is None else _numbers("--levels", levels)
    writable_folder(out.parent)
    exporting.check(out, subject.radio_map.grid.crs, levels=chosen, points=points)
    stations = _stations(subject, bs or [], bs_latlon or [])
    if layer == "coverage":
        made = [layers.link_coverage(subject.radio_map.grid, _data(subject, layer, data))]
    elif layer == "uncertainty":
        only = _one_station(subject, layer, stations)
        made = [_uncertainty(subject, only, altitude, bootstrap or 10, data, seed)]
    else:
        beams = _Beams(azimuth or [], beam_width or [])
        made = _predicted(subject, layer, stations, beams, altitude)
    for one, path in zip(made, (out, out.with_stem(f"{out.stem}-gain")), strict=False):
        _report(one, exporting.write(one, path, levels=chosen, points=points))


def _check_options(layer: str, given: set[str]) -> None:
    if layer not in _OPTIONS:
        raise VeilmapError(f"no layer {layer!r}; there are {', '.join(_OPTIONS)}")
    unused = sorted(given - _OPTIONS[layer])
    if unused:
        raise VeilmapError(f"the layer {layer} has no use for {', '.join(unused)}")


def _check_keeps_inputs(out: Path, *inputs: Path | None) -> None:
    if out.resolve() in {path.resolve() for path in inputs if path is not None}:
        raise VeilmapError(f"{out} is what the layer is made from; name another file to write")


def _opened(path: Path) -> _Subject:
    """The map of a file or of a finished run."""
    from veilmap.federation.run import load_map

    if path.is_dir():
        return _Subject(path, load_map(path), run=True)
    return _Subject(path, RadioMap.load(path), run=False)


def _stations(subject: _Subject, bs: list[str], bs_latlon: list[str]) -> NDArray[np.float64]:
    """The base stations that options name, (B, 3), in the map's metres."""
    from veilmap.coordinates import from_latitude_longitude

    stations = [_numbers("--bs", text, 3) for text in bs]
    for text in bs_latlon:
        latitude, longitude, z = _numbers("--bs-latlon", text, 3)
        try:
            xy = from_latitude_longitude(subject.radio_map.grid.crs, [latitude, longitude])
        except VeilmapError as error:
            raise VeilmapError(f"--bs-latlon: {error}") from None
        stations.append([*xy.tolist(), z])
    return np.array(stations, dtype=np.float64).reshape(-1, 3)


def _one_station(
    subject: _Subject, layer: str, stations: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The one base station of ``layer``, or how to name it."""
    known = _known_stations(subject)
    if len(stations) == 0 and len(np.unique(known, axis=0)) == 1:
        return known[0]
    if len(stations) != 1:
        such = f"; the run has {len(known)}, such as {_text(known[0])}" if len(known) else ""
        raise VeilmapError(f"{layer} needs one base station: name it with --bs x,y,z{such}")
    return stations[0]


def _known_stations(subject: _Subject) -> NDArray[np.float64]:
    """The stations that a run's folder lists; none for a mere map."""
    from veilmap.federation.folder import RunFolder

    return RunFolder(subject.path).base_stations() if subject.run else np.empty((0, 3))


def _predicted(
    subject: _Subject,
    layer: str,
    stations: NDArray[np.float64],
    beams: _Beams,
    altitude: float,
) -> list[Layer]:
    """Layers that the map alone decides."""
    if layer == "heights":
        return [layers.obstacle_heights(subject.radio_map)]
    if layer == "best-server":
        return _best_server(subject, stations, beams, altitude)
    only = _one_station(subject, layer, stations)
    if layer == "los":
        return [layers.los_probability(subject.radio_map, only, altitude)]
    beams.check(1)
    azimuth, width = (given[0] if given else None for given in (beams.azimuths, beams.widths))
    if azimuth is None:
        _say_isotropic(subject)
    made = layers.gain(subject.radio_map, only, altitude, azimuth=azimuth, beam_width=width)
    return [made]


def _say_isotropic(subject: _Subject) -> None:
    """A map that learned of antennas knows them by their stations' ids, not by places."""
    if subject.radio_map.antennas is not None:
        console.print("Antennas are taken to be isotropic: --bs and --azimuth name one that is not")


def _best_server(
    subject: _Subject, stations: NDArray[np.float64], beams: _Beams, altitude: float
) -> list[Layer]:
    """Which station is heard best, and its gain."""
    named = len(stations) > 0
    beams.check(len(stations))
    if not named:
        stations = _known_stations(subject)
    if len(stations) == 0:
        raise VeilmapError(f"{subject.path} names no base stations: name them, --bs x,y,z for each")
    where = "in the order of the command" if named else f"as in {subject.path}/base_stations.csv"
    console.print(f"{len(stations)} base stations, numbered from 0 {where}")
    if not beams.azimuths:
        _say_isotropic(subject)
    made = layers.best_server(
        subject.radio_map, stations, altitude,
        azimuths=beams.azimuths or None, beam_widths=beams.widths or None,
    )  # fmt: skip
    return list(made)


def _data(subject: _Subject, layer: str, data: Path | None) -> Measurements:
    """The measurements that a layer is made from."""
    if subject.run:
        return measurements_behind(subject.path, data)[0]
    if data is None:
        raise VeilmapError(
            f"{layer} is made from measurements: name them with --data, or give a run's folder"
        )
    return Measurements.load(data)


def _uncertainty(
    subject: _Subject,
    bs_xyz: NDArray[np.float64],
    altitude: float,
    replicas: int,
    data: Path | None,
    seed: int | None,
) -> Layer:
    """Train replicas as the run was trained, and see how far they disagree."""
    from veilmap.federation.folder import RunFolder
    from veilmap.federation.training import settings_of

    if not subject.run:
        raise VeilmapError("uncertainty needs a run's folder, which says how the map was trained")
    settings = settings_of(RunFolder(subject.path).config())
    # The replicas know the antennas that the run knew, whatever the file has.
    links = replace(_data(subject, "uncertainty", data), antennas=subject.radio_map.antennas)
    with progress_bar() as progress:
        task = progress.add_task("replicas", total=replicas, note="", visible=False)

        def on_replica(done: int) -> None:
            progress.update(task, completed=done, visible=True)

        maps = layers.bootstrap(
            links, subject.radio_map.grid, replicas, seed=seed, on_replica=on_replica, **settings
        )
    return layers.spread(maps, bs_xyz, altitude)


_PRIVATE = {
    "coverage": "It shows where users measured: keep it as they keep their measurements.",
    "uncertainty": "Its replicas used the measurements anew, beyond what the run promised users.",
}


def _report(layer: Layer, written: exporting.Written) -> None:
    rows, columns = layer.grid.shape
    unit = "" if layer.unit == "1" else f" ({layer.unit})"
    console.print(
        f"Wrote {', '.join(map(str, written.files))}: {layer.long_name}{unit},"
        f" {rows} × {columns} cells of {layer.grid.cell_size:g} m"
    )
    for note in (*written.notes, *([_PRIVATE[layer.name]] if layer.name in _PRIVATE else [])):
        console.print(note[0].upper() + note[1:])


def _numbers(option: str, text: str, count: int | None = None) -> list[float]:
    """Numbers out of a text such as 1,2,3."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not np.isfinite(found).all() or count not in (None, len(found)):
        wanted = f"{count} numbers" if count else "numbers"
        raise VeilmapError(f"{option} takes {wanted} with commas between, not {text!r}")
    return found


def _text(xyz: NDArray[np.float64]) -> str:
    return ",".join(f"{round(value, 2):.12g}" for value in xyz.tolist())
