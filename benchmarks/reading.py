"""What reading and checking a table costs beside Arrow's bare reading of the same file.

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

from veilmap.reading import read_measurements

CELLS = 50


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


def timed(call):
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def compare(path, sites, turns):
    bare = pa.csv.read_csv if path.suffix == ".csv" else pa.parquet.read_table
    ours, theirs = [], []
    for _ in range(turns):
        theirs.append(timed(lambda: bare(path)))
        ours.append(
            timed(
                lambda: read_measurements(
                    path, columns={"gain": "rsrp"}, quantity="rsrp", stations=sites
                )
            )
        )
    return {
        "file": path.suffix,
        "ours_s": statistics.median(ours),
        "arrow_s": statistics.median(theirs),
        "ours_over_arrow": statistics.median(np.divide(ours, theirs).tolist()),
    }


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
        print(f"{options.rows:,} rows   ours (s)  Arrow alone (s)  ratio")
        for name in ("walk.csv", "walk.parquet"):
            row = compare(Path(folder) / name, sites, options.turns)
            rows.append(row)
            print(
                f"{row['file']:>14}  {row['ours_s']:8.2f}  {row['arrow_s']:15.2f}"
                f"  {row['ours_over_arrow']:5.1f}"
            )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
