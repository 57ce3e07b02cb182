"""The fast allocator against the paper's Algorithm 1 and against brute force.

Run by `make bench`. Algorithm 1 is written literally in tests/algorithm1.py, in NumPy and with
its objective compiled. All work on the same real gradients, on one thread, in one run.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

import veilmap as vm
from algorithm1 import CompiledProblem, Problem, algorithm1, brute_force

BUDGETS = (1, 10, 50)
TRADEOFFS = (1, 10, 100)


def real_gradients(count, seed):
    """Clipped gradients and positions of users in early, middle and late rounds."""
    scene = vm.Scene.synthetic(seed)
    data = scene.measure(seed=seed)
    run = vm.train(
        data,
        scene.grid,
        rounds=120,
        seed=seed,
        recording=vm.Recording(keep_uploads={0, 40, 80, 119}),
    )
    rows = np.concatenate([seen.uploads for seen in run.transcript.rounds.values()])
    places = np.tile(data.mean_positions(), (4, 1))
    usable = np.linalg.norm(rows, axis=1) > 0.01
    rows, places = rows[usable].astype(np.float64), places[usable]
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return scene.grid, (rows / np.maximum(norms, 1))[:count], places[:count]


def timed(call):
    started = time.perf_counter()
    result = call()
    return result, time.perf_counter() - started


def compare(grid, gradients, places, budget, tradeoff, plain, brute):
    """Worst shortfalls of our objective, and mean seconds a user of each method."""
    mechanism = vm.GeometryAligned(noise_budget=budget, tradeoff=tradeoff)
    mechanism.variances(gradients[:1], grid, places[:1])
    kappa = mechanism.variance_weight(grid.cells)
    allocated, ours_time = timed(lambda: mechanism.variances(gradients, grid, places))
    short, short_brute, compiled_time, plain_time = [], [], [], []
    for i, (gradient, place) in enumerate(zip(gradients, places, strict=True)):
        problem = CompiledProblem(gradient, grid, place, budget, kappa)
        ours = problem.objective_of_variances(allocated[i])
        slope, seconds = timed(lambda problem=problem: algorithm1(problem))
        compiled_time.append(seconds)
        theirs = problem.at(slope, 1.0)
        short.append((theirs - ours) / abs(theirs))
        if i < brute:
            best = brute_force(problem)
            short_brute.append((best - ours) / abs(best))
        if i < plain:
            literal = Problem(gradient, grid, place, budget, kappa)
            plain_time.append(timed(lambda literal=literal: algorithm1(literal))[1])
    return {
        "budget": budget,
        "tradeoff": tradeoff,
        "users": len(gradients),
        "worst_below_algorithm_1": max(short),
        "worst_below_brute_force": max(short_brute),
        "microseconds": 1e6 * ours_time / len(gradients),
        "numpy_over_ours": np.mean(plain_time) * len(gradients) / ours_time,
        "compiled_over_ours": np.mean(compiled_time) * len(gradients) / ours_time,
    }


def main():
    os.environ["VEILMAP_THREADS"] = "1"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=300, help="real gradients (default 300)")
    parser.add_argument("--plain", type=int, default=1, help="of them also timed in NumPy")
    parser.add_argument("--brute", type=int, default=1, help="of them also searched by brute force")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    grid, gradients, places = real_gradients(options.users, options.seed)
    CompiledProblem(gradients[0], grid, places[0], 1, 0.1).at(np.ones(2), 1.0)  # compiles
    rows = []
    print("  μ    ρ  users  below Alg. 1  below brute  µs/user  NumPy/ours  compiled/ours")
    for budget in BUDGETS:
        for tradeoff in TRADEOFFS:
            row = compare(grid, gradients, places, budget, tradeoff, options.plain, options.brute)
            rows.append(row)
            print(
                f"{budget:3d}  {tradeoff:3d}  {row['users']:5d}"
                f"  {row['worst_below_algorithm_1']:12.1e}"
                f"  {row['worst_below_brute_force']:11.1e}  {row['microseconds']:7.0f}"
                f"  {row['numpy_over_ours']:10.0f}  {row['compiled_over_ours']:13.0f}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
