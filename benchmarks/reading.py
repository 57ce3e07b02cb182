"""What reading, checking and tracing a table costs beside Arrow's bare reading of the same file.

Tracing walks the cells under every link: once over a flat map of 10 m cells, as each round of a
training does.

Every kind of file is read in turns by both, and the median of the ratios within a turn counts: a
busy machine slows both alike.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import veilmap as vm
from veilmap.ingest import check, read_measurements

CELLS = 50
CELL = 10.0  # metres, of the map that is traced


def walk(rows, seed):
    """Rows of phones in a city, in degrees."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "user": np.array([f"phone-{number}" for number in range(500)])[np.arange(rows) % 500],
            "time": 1_700_000_000 + np.arange(rows),
            "latitude": 48.13 + rng.uniform(-0.02, 0.02, rows),
            "longitude": 11.57 + rng.uniform(-0.02, 0.02, rows),
            "bs": np.array([f"cell-{number}" for number in range(CELLS)])[
                rng.integers(0, CELLS, rows)
            ],
            "rsrp": rng.normal(-95, 8, rows).round(1),
        }
    )


def stations(seed):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "bs": [f"cell-{number}" for number in range(CELLS)],
            "bs_latitude": 48.13 + rng.uniform(-0.02, 0.02, CELLS),
            "bs_longitude": 11.57 + rng.uniform(-0.02, 0.02, CELLS),
            "bs_z": np.full(CELLS, 30.0),
        }
    )


def timed(call, *given):
    started = time.perf_counter()
    result = call(*given)
    return time.perf_counter() - started, result


def compare(path, sites, turns):
    bare = pa.csv.read_csv if path.suffix == ".csv" else pa.parquet.read_table
    times = {"arrow": [], "read": [], "check": [], "trace": []}
    for turn in range(turns + 1):
        seconds, _ = timed(lambda: bare(path))
        times["arrow"].append(seconds)
        seconds, reading = timed(
            lambda: read_measurements(
                path, columns={"gain": "rsrp"}, quantity="rsrp", stations=sites
            )
        )
        times["read"].append(seconds)
        times["check"].append(timed(check, reading)[0])
        times["trace"].append(timed(traced, reading.measurements)[0])
        if turn == 0:  # compiles the kernels, fills the disk's cache
            times = {name: [] for name in times}
    ratios = np.divide(times["read"], times["arrow"])
    medians = {f"{name}_s": statistics.median(values) for name, values in times.items()}
    return {"file": path.suffix, **medians, "read_over_arrow": float(np.median(ratios))}


def traced(data):
    ends = np.vstack([data.user_xyz, data.bs_xyz])[:, :2]
    grid = vm.Grid.covering(ends, CELL, crs=data.crs)
    return vm.RadioMap(grid, np.full(grid.shape, 4.0)).predict_links(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        table, sites = walk(options.rows, options.seed), Path(folder) / "sites.csv"
        pa.csv.write_csv(stations(options.seed), sites)
        pa.csv.write_csv(table, Path(folder) / "walk.csv")
        pa.parquet.write_table(table, Path(folder) / "walk.parquet")
        print(
            f"{options.rows:,} rows  Arrow alone (s)  read (s)  check (s)  trace (s)  read / Arrow"
        )
        for name in ("walk.csv", "walk.parquet"):
            row = compare(Path(folder) / name, sites, options.turns)
            rows.append(row)
            print(
                f"{row['file']:>14}  {row['arrow_s']:15.2f}  {row['read_s']:8.2f}"
                f"  {row['check_s']:9.2f}  {row['trace_s']:9.2f}  {row['read_over_arrow']:12.1f}"
            )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
