"""`veilmap compare`."""

from pathlib import Path
from typing import Any, cast

from veilmap import ingest
from veilmap.cli.options import argument, counted, listed, option
from veilmap.cli.output import console, progress_bar, working, writable_file
from veilmap.cli.reading import account


def compare(
    data: Path = argument("Measurements (.csv, .parquet)."),
    schemes: str = option(
        "users,blocks,few", "How test data are set aside: users, blocks, few; several with commas."
    ),
    method: str = option("", "Which methods, with commas; all by default.", "--methods"),
    folds: int = option(5, "Folds of each scheme.", min=2),
    first: int | None = option(None, "Only so many of the folds, to save time.", min=1),
    block: float | None = option(None, "Side of blocks in metres; default: a tenth of the area's."),
    few: str = option("300,3000", "Links to learn from where there are few, with commas."),
    cell_size: float | None = option(None, "Side of a cell in metres; default: 100 along a side."),
    rounds: int = option(100, "Rounds of training.", min=2),
    calibrate: str = option("stations", "Whose offsets are learned: stations,devices or nothing."),
    budget: float = option(50.0, "μ of uniform and aligned noise."),
    epsilon: float = option(8.0, "ε of the aggregate mode."),
    delta: float = option(1e-6, "δ of the aggregate mode."),
    buildings: Path | None = option(None, "Footprints or a surface model, which are public."),
    seed: int = option(0, "Fixes all randomness.", min=0),
    out: Path | None = option(None, "Keep scores here; the command continues from them.", "--json"),
) -> None:
    """Judge the map beside what people use today, on the same folds.

    Baselines: log-distance with station offsets, k-nn, kriging, regression-kriging,
    gradient-boosting. Ours: central (pooled), federated, uniform, aligned, aggregate, one-sum
    (a survey), and the mechanisms of plug-ins. Our model (degrees of obstruction, residual field)
    is chosen on validation data within each fold.
    It needs all data in one place, so it is for studies.
    """
    from veilmap import compare as comparing
    from veilmap.cli import tables
    from veilmap.scenes import buildings as public

    with working(f"reading {data} …"):
        links = comparing.without_patterns(ingest.load(data, told=account))
        grid = comparing.covering_grid(links, cell_size)
    heights = None if buildings is None else public.heights(buildings, grid)
    whose = cast("Any", tuple(listed(calibrate)))
    settings = comparing.ComparisonSettings(
        grid, rounds, whose, budget, epsilon, delta, heights, seed
    )
    names = listed(method) or comparing.all_methods()
    methods = comparing.methods(names, settings)
    counts = tuple(counted("--few", few, "numbers of links such as 300,3000"))
    splits = comparing.Splits(tuple(listed(schemes)), folds, first, block, counts, seed)
    count = sum(1 for _ in splits.split(links))  # what cannot be divided is refused here
    writable_file(out)
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
