"""Degrees of obstruction and public buildings on ray-traced streets.

    python benchmarks/munich.py munich.npz

The file holds links traced with Sionna RT: `user_xyz`, `bs_xyz`, `gain_db` (users × stations, NaN
where no path was found), the same of test users (`*_test`), and `height_map`, `cell_size`,
`origin_xy` of the buildings.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import veilmap as vm
from veilmap.federation.selection import ModelChoice, with_field
from veilmap.model.field_fit import points_apart

_SPACING = 15.0  # metres between points of the residual field


def links(file, ending):
    """The measurements of some users, without the links that have no path."""
    user_xyz, gain = file[f"user_xyz{ending}"], file[f"gain_db{ending}"]
    user, bs = np.nonzero(np.isfinite(gain))
    return vm.Measurements(user, user_xyz[user], file["bs_xyz"][bs], gain[user, bs], bs)


def rows(file):
    """(what, degrees, buildings, MAE on test users)."""
    train, test = links(file, ""), links(file, "_test")
    heights = file["height_map"].astype(float)
    grid = vm.Grid(float(file["cell_size"]), heights.shape, tuple(file["origin_xy"].tolist()))

    def error(radio_map):
        return vm.baselines.mean_absolute_error(radio_map, test)

    spacing = points_apart(grid, len(np.unique(train.user_xyz, axis=0)))
    for known, degrees in ((None, 2), (heights, 2), (heights, 3)):
        model = ModelChoice(obstacles=False, degrees=degrees, residual=spacing)
        fitted = model.fit(train, grid, buildings=known)
        yield "laws and a field at once", degrees, known is not None, error(fitted)
    for degrees in (2, 3, 4):
        model = ModelChoice(degrees=degrees, wide=True)
        ground = np.where(heights < 2, -8.0, heights)
        exact = vm.RadioMap(grid, ground, vm.Propagation.of_degrees(degrees))
        yield "true heights, best θ", degrees, True, error(exact.fit_propagation(train))
        for known in (None, heights):
            public = known is not None
            pooled = model.fit(train, grid, rounds=200, buildings=known)
            yield "learned, pooled", degrees, public, error(pooled)
            yield "and a field", degrees, public, error(with_field(pooled, train, _SPACING))
            noise = vm.GeometryAligned(noise_budget=50)
            run = model.train(train, grid, mechanism=noise, rounds=200, seed=0, buildings=known)
            yield "aligned, μ = 50", degrees, public, error(run.radio_map)


def baselines(file):
    """(what, MAE on test users)."""
    train, test = links(file, ""), links(file, "_test")
    for model in (
        vm.baselines.LogDistance(),
        vm.baselines.NearestNeighbours(),
        vm.baselines.RegressionKriging(),
        vm.baselines.GradientBoosting(),
    ):
        name = type(model).__name__
        yield name, vm.baselines.mean_absolute_error(model.fit(train), test)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    path = parser.parse_args().file
    if not path.exists():
        sys.exit(f"there is no file {path}")
    with np.load(path) as file:
        print(f"{'MAE on test users (dB)':24} {'degrees':>7} {'buildings':>9}")
        for what, degrees, public, mae in rows(file):
            known = "known" if public else "–"
            print(f"{what:24} {degrees:7} {known:>9} {mae:6.2f}", flush=True)
        for what, mae in baselines(file):
            print(f"{what:24} {'':7} {'':9} {mae:6.2f}", flush=True)


if __name__ == "__main__":
    main()
