"""`veilmap compare`."""

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from veilmap.cli.options import Seed, console, listed, progress_bar, writable_folder
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError


def compare(
    data: Annotated[Path, typer.Argument(help="Measurements (.csv, .parquet).")],
    schemes: Annotated[
        str,
        typer.Option(help="How test data are set aside: users, blocks, few; several with commas."),
    ] = "users,blocks,few",
    method: Annotated[
        str, typer.Option("--methods", help="Which methods, with commas; all by default.")
    ] = "",
    folds: Annotated[int, typer.Option(min=2, help="Folds of each scheme.")] = 5,
    first: Annotated[
        int | None, typer.Option(min=1, help="Only so many of the folds, to save time.")
    ] = None,
    block: Annotated[
        float | None,
        typer.Option(help="Side of blocks in metres; by default a tenth of the ground's."),
    ] = None,
    few: Annotated[
        str, typer.Option(help="Links to learn from where there are few, with commas.")
    ] = "300,3000",
    cell_size: Annotated[
        float | None, typer.Option(help="Side of a cell in metres; by default 100 along a side.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of training.")] = 100,
    calibrate: Annotated[
        str, typer.Option(help="Whose offsets are learned: stations,devices or nothing.")
    ] = "stations",
    budget: Annotated[float, typer.Option(help="μ of uniform and aligned noise.")] = 50.0,
    epsilon: Annotated[float, typer.Option(help="ε of the aggregate mode.")] = 8.0,
    delta: Annotated[float, typer.Option(help="δ of the aggregate mode.")] = 1e-6,
    buildings: Annotated[
        Path | None, typer.Option(help="Footprints or a surface model, which are public.")
    ] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option("--json", help="Keep all scores here; the same command goes on from it."),
    ] = None,
) -> None:
    """Judge the map beside what people use today, on the same folds.

    Baselines: log-distance with station offsets, k-nn, kriging, regression-kriging,
    gradient-boosting. Ours: central (pooled), federated, uniform, aligned, aggregate. Our model
    (degrees of obstruction, residual field) is chosen on validation data within each fold.
    It needs all data in one place, so it is for studies.
    """
    from veilmap import compare as comparing
    from veilmap.cli import tables
    from veilmap.scenes import buildings as public

    links = comparing.without_patterns(Measurements.load(data))
    grid = comparing.covering_grid(links, cell_size)
    settings = comparing.ComparisonSettings(
        grid,
        rounds,
        cast("Any", tuple(listed(calibrate))),
        budget,
        epsilon,
        delta,
        None if buildings is None else public.heights(buildings, grid),
        seed,
    )
    names = listed(method) or [*comparing.BASELINES, *comparing.OURS]
    methods = comparing.methods(names, settings)
    splits = comparing.Splits(tuple(listed(schemes)), folds, first, block, _counts(few), seed)
    count = sum(1 for _ in splits.split(links))  # what cannot be divided is refused here
    if out is not None:
        writable_folder(out.parent)
    kept = comparing.ScoreFile(out, comparing.described_settings(settings, links, splits))
    scores = []
    with progress_bar() as progress:
        task = progress.add_task("comparing", total=count * len(methods), note="")
        for score in kept.compare(splits.split(links), methods):
            scores.append(score)
            progress.update(task, advance=1, note=f"{score.method} {score.mae_db:.2f} dB")
    for table in tables.comparison_tables(comparing.Comparison(scores)):
        console.print(table)
    console.print(f"{len(links):,} links, cells of {grid.cell_size:g} m, {rounds} rounds")
    if out is not None:
        console.print(f"Wrote {out}")


def _counts(text: str) -> tuple[int, ...]:
    try:
        counts = tuple(int(part) for part in listed(text))
    except ValueError:
        counts = ()
    if not counts:
        message = f"few takes numbers of links such as 300,3000, not {text!r}"
        raise ConfigurationError(message, "few")
    return counts
