"""`veilmap train`."""

import math
from pathlib import Path
from typing import Annotated, Literal, cast

import numpy as np
import typer
from numpy.typing import NDArray

from veilmap import flower
from veilmap._util.options import options_of
from veilmap.cli.options import (
    AllowMissing,
    Budget,
    Clip,
    Contribute,
    Delta,
    Epsilon,
    Sees,
    Tradeoff,
    console,
    counted,
    flag,
    listed,
    progress_bar,
    writable_folder,
)
from veilmap.cli.stations import numbers
from veilmap.data.folders import Crowd, without_antennas
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.federation import (
    HistoryRow,
    Model,
    NoiseAwareStep,
    Participation,
    Recording,
    Run,
)
from veilmap.federation.history import last_mae
from veilmap.federation.messages import ClientId
from veilmap.federation.model import Calibrated
from veilmap.federation.rounds import Engine
from veilmap.federation.selection import ModelChoice, chosen_on
from veilmap.federation.steps import StepRule
from veilmap.federation.study import STUDY, unpublished
from veilmap.federation.transcript import ServerSees
from veilmap.geometry.grid import Grid
from veilmap.geometry.tiling import Tiling
from veilmap.model.propagation import Propagation
from veilmap.privacy import mechanisms
from veilmap.privacy.accounting import has_guarantee, promise
from veilmap.privacy.mechanisms import MECHANISMS, Mechanism
from veilmap.runs.source import Source
from veilmap.scenes import buildings as known_buildings

_DEGREES = 2


def train(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Measurements, .csv or .parquet, or a folder of .parquet parts; without it, a"
            " synthetic city."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the run.")] = Path("veilmap-run"),
    mechanism: Annotated[
        str, typer.Option(help=f"What clients do to gradients: {', '.join(MECHANISMS)}.")
    ] = "aligned",
    budget: Budget = None,
    tradeoff: Tradeoff = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    clip: Clip = None,
    server_sees: Sees = None,
    degrees: Annotated[
        int, typer.Option(min=2, max=4, help="Degrees of obstruction, each with a law of its own.")
    ] = _DEGREES,
    calibrate: Annotated[
        str, typer.Option(help="Learn offsets in dB of stations, devices, or stations,devices.")
    ] = "",
    buildings: Annotated[
        Path | None,
        typer.Option(help="Public heights to start from: .tif surface, .geojson or .gpkg."),
    ] = None,
    ground: Annotated[
        str | None,
        typer.Option(help="Height of the ground under a surface in metres, or a terrain .tif."),
    ] = None,
    residual: Annotated[
        float | None,
        typer.Option(help="Learn what obstacles leave over, on points this many metres apart."),
    ] = None,
    choose_on: Annotated[
        Path | None,
        typer.Option(
            help="Your own measurements: choose degrees and residual on them, not on users'."
        ),
    ] = None,
    no_antennas: Annotated[
        bool, typer.Option("--no-antennas", help="Take all antennas of DATA to be isotropic.")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Training rounds.")] = 200,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Of noise, for studies: with one there is no promise. Without it noise is"
            " cryptographically random.",
        ),
    ] = None,
    city: Annotated[int, typer.Option(min=0, help="Which synthetic city.")] = 0,
    users: Annotated[int, typer.Option(min=1, help="Users of the synthetic city.")] = 100,
    test: Annotated[
        Path | None, typer.Option(help="Measurements for the map's error, .csv or .parquet.")
    ] = None,
    cell_size: Annotated[float, typer.Option(help="Side of the map's cells, in metres.")] = 3.0,
    area: Annotated[
        str | None,
        typer.Option(
            help="WEST,SOUTH,EAST,NORTH of the map in DATA's metres; by default what DATA covers."
            " It is published: aggregate needs it."
        ),
    ] = None,
    stations: Annotated[
        Path | None,
        typer.Option(
            help="Public base stations, .csv with bs,x,y,z in DATA's metres; by default those in"
            " DATA. They are published: aggregate needs them."
        ),
    ] = None,
    tile: Annotated[float | None, flag("side", Tiling)] = None,
    tile_margin: Annotated[float, flag("margin", Tiling)] = Tiling().margin,
    share: Annotated[float, flag("share", Participation)] = Participation().share,
    in_turns: Annotated[bool, flag("in_turns", Participation)] = False,
    contribute: Contribute = None,
    dropout: Annotated[float, flag("dropout", Participation)] = Participation().dropout,
    late: Annotated[float, flag("late", Participation)] = Participation().late,
    allow_missing: AllowMissing = None,
    keep_uploads: Annotated[
        str, typer.Option(help="Rounds whose uploads to keep: 1,50,200 or all.")
    ] = "",
    keep_users: Annotated[
        str, typer.Option(help="Keep only these users' uploads: ids such as 3,7.")
    ] = "",
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Rounds between them.")] = 10,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in OUT.")] = False,
    engine: Annotated[
        str, typer.Option(help="in-process, or flower: simulated nodes, one for each user.")
    ] = "in-process",
    ray_address: Annotated[
        str | None,
        typer.Option(help="A Ray cluster that simulates the nodes: auto, or host:port (flower)."),
    ] = None,
) -> None:
    """Learn a radio map from users who keep their measurements.

    With --mechanism aggregate OUT holds noisy sums, public facts and who took part. What a study
    knows besides (losses, the map's error, where DATA is) goes to OUT.study, which is not for
    publication.
    """
    from veilmap import federation

    writable_folder(out)
    carrier = _engine(engine, ray_address)
    chosen = mechanism_from(
        mechanism, noise_budget=budget, tradeoff=tradeoff, epsilon=epsilon, delta=delta, clip=clip,
        dropout=allow_missing, contribute=contribute,
    )  # fmt: skip
    source = Source(data, test, city, users, cell_size, buildings, _area(area), stations)
    _check_public(source, chosen)
    with progress_bar() as opening:
        files = opening.add_task("reading", total=None, note="", visible=False)
        links, unseen, grid = source.load(
            lambda done, total: opening.update(
                files, completed=done, total=total, note="files", visible=total > 1
            )
        )
    crowd = without_antennas(links) if no_antennas else links
    heights = _public_heights(buildings, ground, grid)
    step, residual = _model(
        choose_on, grid, degrees, residual, _calibrated(calibrate), heights,
        fields=server_sees == "sums" or chosen.needs_sums, measured=data is not None,
    )  # fmt: skip
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
            server_sees=trust_from(server_sees),
            engine=carrier,
            model=Model(
                step=step,
                calibrate=_calibrated(calibrate),
                residual=residual,
                stations=source.public_stations(),
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
        raise ConfigurationError(
            "--ray-address: a cluster simulates Flower's nodes: --engine flower"
        )
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
        made = promise(run.transcript.mechanism, last.epsilon, run.seed).words
        console.print(made[0].upper() + made[1:], highlight=False)
    if run.stopped:
        console.print(run.stopped)
    console.print(f"Wrote the run to {out}/")
    if promised:
        console.print(f"{STUDY}: {unpublished(out)}/")


def _area(text: str | None) -> tuple[float, float, float, float] | None:
    """The corners that an option names."""
    if text is None:
        return None
    west, south, east, north = numbers("--area", text, 4)
    if not (west < east and south < north):
        raise ConfigurationError(f"--area takes WEST,SOUTH,EAST,NORTH in metres, not {text!r}")
    return west, south, east, north


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
        if measured:
            return ModelChoice(degrees=degrees).step, residual
        return NoiseAwareStep(start_propagation=Propagation.of_degrees(degrees)), residual
    if degrees != _DEGREES or residual is not None:
        raise ConfigurationError("--choose-on chooses --degrees and --residual: leave them out")
    own = Measurements.load(choose_on)
    with console.status(f"choosing a model on {choose_on} …"):
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
            raise ConfigurationError(
                "--ground belongs to a surface model: name it with --buildings"
            )
        return None
    options = {} if ground is None else {"ground": ground}
    if options and file.suffix.lower() not in (".tif", ".tiff"):
        raise ConfigurationError(
            "--ground belongs to a surface model (.tif); footprints have heights"
        )
    return known_buildings.heights(file, grid, **options)


def _calibrated(text: str) -> list[Calibrated]:
    """Whose offsets to learn; `train` knows which there are."""
    return cast("list[Calibrated]", listed(text))


def mechanism_from(name: str, **options: float | None) -> Mechanism:
    """The mechanism that a command's options describe."""
    given = {key: value for key, value in options.items() if value is not None}
    known = options_of(*MECHANISMS.values())
    return mechanisms.named(name, given, called={key: known[key].flag for key in given})


def trust_from(text: str | None) -> ServerSees | None:
    """The trust model that an option names."""
    if text not in (None, "uploads", "sums"):
        raise ConfigurationError(f"--server-sees is uploads or sums, not {text!r}")
    return cast("ServerSees | None", text)


def _rounds(text: str, rounds: int) -> set[int] | Literal["all"]:
    """Rounds from 0 out of a text such as 1,50, where people count from 1."""
    if text.strip() == "all":
        return "all"
    chosen = counted("--keep-uploads", text)
    if any(not 0 <= number < rounds for number in chosen):
        raise ConfigurationError(f"--keep-uploads: rounds count from 1 to {rounds}, not {text}")
    return set(chosen)


def _users(text: str, links: Crowd) -> set[ClientId] | None:
    """The named users, or None for all."""
    if not text.strip():
        return None
    known: dict[str, ClientId] = {str(user): user for user in links.users.tolist()}
    wanted = listed(text)
    for name in wanted:
        if name not in known:
            raise ConfigurationError(f"--keep-users: no user {name} in the measurements")
    return {known[name] for name in wanted}
