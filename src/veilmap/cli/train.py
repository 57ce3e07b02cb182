"""`veilmap train`."""

import math
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from veilmap import flower, ingest
from veilmap.cli.options import (
    SERVER_SEES,
    TEST,
    area_of,
    argument,
    counted,
    declared,
    listed,
    mechanism_from,
    option,
    with_mechanism_options,
)
from veilmap.cli.output import console, progress_bar, sentence, working, writable_folder
from veilmap.cli.reading import account
from veilmap.data.folders import Crowd, without_antennas
from veilmap.errors import ConfigurationError
from veilmap.federation import HistoryRow, Model, Participation, Recording, Run
from veilmap.federation.config import RunConfig
from veilmap.federation.history import last_mae
from veilmap.federation.messages import ClientId
from veilmap.federation.model import Calibrated
from veilmap.federation.rounds import Engine
from veilmap.federation.selection import chosen_on
from veilmap.federation.steps import StepRule
from veilmap.federation.study import STUDY, unpublished
from veilmap.federation.transcript import ServerSees
from veilmap.geometry.grid import Grid
from veilmap.geometry.tiling import Tiling
from veilmap.privacy.accounting import has_guarantee
from veilmap.privacy.mechanisms import MECHANISMS, Mechanism
from veilmap.runs.command import usual_step
from veilmap.runs.source import Source
from veilmap.scenes import buildings as known_buildings

_DEGREES = 2


@with_mechanism_options
def train(
    data: Path | None = argument(
        "Measurements, .csv or .parquet, the log of a known app, or a folder of .parquet parts;"
        " without it, a synthetic city.",
        default=None,
    ),
    out: Path = option(Path("veilmap-run"), "Folder for the run."),
    mechanism: str = option("aligned", f"What clients do to gradients: {', '.join(MECHANISMS)}."),
    protection: Any = None,
    server_sees: str | None = SERVER_SEES,
    robust: bool = declared("robust", RunConfig),
    degrees: int = option(_DEGREES, "Degrees of obstruction, each with its own law.", min=2, max=4),
    calibrate: str = option("", "Learn offsets in dB of stations, devices, or stations,devices."),
    buildings: Path | None = option(None, "Public heights to start from: .tif, .geojson or .gpkg."),
    ground: str | None = option(None, "Ground under a surface model: metres, or a terrain .tif."),
    residual: float | None = option(None, "Learn a residual field on points so many metres apart."),
    choose_on: Path | None = option(
        None, "Your own measurements: choose degrees and residual on them, not on users'."
    ),
    no_antennas: bool = option(False, "Treat antennas of DATA as isotropic.", "--no-antennas"),
    rounds: int = option(200, "Training rounds.", min=1),
    seed: int | None = option(
        None,
        "Of noise, for studies: with one there is no promise. Without it noise is"
        " cryptographically random.",
        min=0,
    ),
    city: int = option(0, "Which synthetic city.", min=0),
    users: int = option(100, "Users of the synthetic city.", min=1),
    test: Path | None = TEST,
    cell_size: float = option(3.0, "Side of the map's cells, in metres."),
    area: str | None = option(
        None,
        "WEST,SOUTH,EAST,NORTH of the map in DATA's metres; by default what DATA covers."
        " It is published: aggregate needs it.",
    ),
    stations: Path | None = option(
        None,
        "Public base stations, .csv with bs,x,y,z in DATA's metres; by default those in"
        " DATA. They are published: aggregate needs them.",
    ),
    tile: float | None = declared("side", Tiling, None),
    tile_margin: float = declared("margin", Tiling),
    share: float = declared("share", Participation),
    in_turns: bool = declared("in_turns", Participation),
    dropout: float = declared("dropout", Participation),
    late: float = declared("late", Participation),
    keep_uploads: str = option("", "Rounds whose uploads to keep: 1,50,200 or all."),
    keep_users: str = option("", "Keep only these users' uploads: ids such as 3,7."),
    checkpoint_every: int = option(10, "Rounds between them.", min=1),
    resume: bool = option(False, "Go on with the run in OUT.", "--resume"),
    engine: str = option("in-process", "in-process, or flower: a simulated node for each user."),
    ray_address: str | None = option(None, "Ray cluster for --engine flower: auto, or host:port."),
) -> None:
    """Learn a radio map from users who keep their measurements.

    With --mechanism aggregate OUT holds noisy sums, public facts and who took part. What a study
    knows besides (losses, the map's error, where DATA is) goes to OUT.study, which is not for
    publication.
    """
    from veilmap import federation

    writable_folder(out)
    carrier = _engine(engine, ray_address)
    chosen = mechanism_from(mechanism, protection)
    corners = None if area is None else area_of(area)
    source = Source(data, test, city, users, cell_size, buildings, corners, stations)
    _check_public(source, chosen)
    with progress_bar() as opening:
        files = opening.add_task("reading", total=None, note="", visible=False)
        links, unseen, grid = source.load(
            lambda done, total: opening.update(
                files, completed=done, total=total, note="files", visible=total > 1
            ),
            told=account,
        )
    crowd = without_antennas(links) if no_antennas else links
    heights = _public_heights(buildings, ground, grid)
    calibrated = cast("list[Calibrated]", listed(calibrate))  # `federation.train` checks them
    step, residual = _model(
        choose_on,
        grid,
        degrees,
        residual,
        calibrated,
        heights,
        fields=server_sees == "sums" or chosen.needs_sums,
        measured=data is not None,
    )
    with progress_bar() as progress:
        # Not shown before a round is done: a mistake should leave one line and no bar.
        task = progress.add_task(mechanism, total=rounds, note="", visible=False)

        def on_round(row: HistoryRow) -> None:
            # On Flower losses stay with the users.
            known = not (math.isnan(row.loss) or has_guarantee(chosen))
            note = f"loss {row.loss:5.1f} dB²" if known else f"{row.clients} users"
            progress.update(task, completed=row.round + 1, note=note, visible=True)

        run = federation.train(
            crowd,
            grid,
            mechanism=chosen,
            rounds=rounds,
            seed=seed,
            participation=Participation(share, dropout, late, in_turns),
            tiling=None if tile is None else Tiling(tile, tile_margin),
            server_sees=cast("ServerSees | None", server_sees),
            robust=robust,
            engine=carrier,
            model=Model(
                step=step,
                calibrate=calibrated,
                residual=residual,
                stations=source.public_stations(),
                station_errors=source.station_errors(),
                buildings=heights,
            ),
            recording=Recording(
                out=out,
                resume=resume,
                checkpoint_every=checkpoint_every,
                keep_uploads=_rounds(keep_uploads, rounds),
                keep_users=_users(keep_users, links),
                test=unseen,
                source=source.described(),
                on_round=on_round,
            ),
        )
    _say(run, out, has_guarantee(chosen))


def _engine(name: str, ray_address: str | None) -> Engine | None:
    """The engine of that name; None is this process."""
    if name == "flower":
        return flower.Simulation(ray_address)
    if name != "in-process":
        raise ConfigurationError(f"--engine is in-process or flower, not {name!r}")
    if ray_address is not None:
        raise ConfigurationError("--ray-address needs --engine flower")
    return None


def _say(run: Run, out: Path, promised: bool) -> None:
    """What came of a training; what a guarantee does not cover is marked."""
    last, mae = run.history[-1], last_mae(run.history)
    measured = [
        *([f"loss {last.loss:.2f} dB²"] if not math.isnan(last.loss) else []),
        *([f"map MAE {mae:.2f} dB on test users"] if not math.isnan(mae) else []),
    ]
    said = ", ".join(measured) or f"{len(run.history)} rounds"
    console.print(f"{STUDY}: {said}" if measured and promised else said)
    if promised:
        console.print(sentence(run.promise.words), highlight=False)
    if run.stopped:
        console.print(run.stopped)
    console.print(f"Wrote the run to {out}/")
    if promised:
        console.print(f"{STUDY}: {unpublished(out)}/")


def _check_public(source: Source, mechanism: Mechanism) -> None:
    """Under a guarantee nothing that is published may come from users' measurements."""
    if source.data is None or not has_guarantee(mechanism):
        return
    given = {"--area WEST,SOUTH,EAST,NORTH": source.area, "--stations FILE": source.stations}
    missing = [option for option, value in given.items() if value is None]
    if missing:
        raise ConfigurationError(
            f"--mechanism {mechanism.name} needs {' and '.join(missing)}: the map's ground and base"
            " stations are published, and taken from users' measurements they would tell of users"
        )


def _model(
    choose_on: Path | None,
    grid: Grid,
    degrees: int,
    residual: float | None,
    calibrate: list[Calibrated],
    heights: NDArray[np.float64] | None,
    *,
    fields: bool,
    measured: bool,
) -> tuple[StepRule, float | None]:
    """The server's step and the residual field: as asked for, or chosen on one's own data."""
    if choose_on is None:
        return usual_step(degrees, measured=measured), residual
    if degrees != _DEGREES or residual is not None:
        raise ConfigurationError("--choose-on chooses --degrees and --residual: leave them out")
    own = ingest.load(choose_on)
    with working(f"choosing a model on {choose_on} …"):
        trial = chosen_on(
            own, grid, calibrate=calibrate, buildings=heights, residuals=None if fields else (None,)
        )
    console.print(f"Chosen on {choose_on}: {trial.model} (MAE {trial.mae_db:.2f} dB there)")
    return trial.model.step, trial.model.residual


def _public_heights(
    file: Path | None, ground: str | None, grid: Grid
) -> NDArray[np.float64] | None:
    """What a file of buildings says about the map's cells."""
    if file is None:
        if ground is not None:
            raise ConfigurationError("--ground needs a surface model: name it with --buildings")
        return None
    if ground is None:
        return known_buildings.heights(file, grid)
    if file.suffix.lower() not in (".tif", ".tiff"):
        raise ConfigurationError("--ground needs a surface model (.tif), not footprints")
    return known_buildings.heights(file, grid, ground=ground)


def _rounds(text: str, rounds: int) -> set[int] | Literal["all"]:
    """Rounds from 0 out of a text such as 1,50, where people count from 1."""
    if text.strip() in ("", "all"):
        return "all" if text.strip() else set()
    chosen = counted("--keep-uploads", text, "rounds such as 1,50 or all")
    if any(not 1 <= number <= rounds for number in chosen):
        raise ConfigurationError(f"--keep-uploads: rounds count from 1 to {rounds}, not {text}")
    return {number - 1 for number in chosen}


def _users(text: str, links: Crowd) -> set[ClientId] | None:
    """The named users, or None for all."""
    known: dict[str, ClientId] = {str(user): user for user in links.users.tolist()}
    unknown = [name for name in listed(text) if name not in known]
    if unknown:
        raise ConfigurationError(f"--keep-users: no user {unknown[0]} in the measurements")
    return {known[name] for name in listed(text)} or None
