from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import veilmap as vm
from algorithm1 import CompiledProblem, Problem, algorithm1, brute_force
from refusals import refused
from veilmap._kernels import sampling
from veilmap._util.plain import from_plain
from veilmap.errors import ConfigurationError, DataError
from veilmap.privacy import noise
from veilmap.privacy.mechanisms import MECHANISMS, Mechanism
from veilmap.privacy.mechanisms.upload import LEAST_NORM
from veilmap.testing import check_mechanism

GRID = vm.Grid(3.0, (12, 15), (-5.0, 40.0))
ALIGNED = vm.GeometryAligned(noise_budget=10, tradeoff=10)


def some_gradient(rng, grid, kind):
    """Gradients as they come: peaked, sparse, in one cell, flat, none at all."""
    g = rng.normal(size=grid.cells)
    if kind == "peaked":
        away = np.linalg.norm(
            grid.centres - rng.uniform(grid.centres.min(0), grid.centres.max(0)), axis=1
        )
        g *= np.exp(-away / 6)
    elif kind == "sparse":
        g *= rng.random(grid.cells) < 0.05
    elif kind == "one cell":
        g = np.zeros(grid.cells)
        g[rng.integers(grid.cells)] = 1.0
    elif kind == "none":
        g = np.zeros(grid.cells)
    norm = np.linalg.norm(g)
    return g * rng.uniform(0.02, 1) / norm if norm > 0 else g


KINDS = ["peaked", "sparse", "one cell", "flat", "none"]


@st.composite
def allocations(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    grid = vm.Grid(
        draw(st.sampled_from([1.0, 3.0])), (draw(st.integers(2, 20)), draw(st.integers(2, 20)))
    )
    mechanism = vm.GeometryAligned(
        noise_budget=10 ** draw(st.floats(-8, 6)),
        tradeoff=draw(st.sampled_from([0, 1, 10, 100, 1e6])),
    )
    west, east, south, north = grid.extent
    user = rng.uniform([west - 20, south - 20], [east + 20, north + 20])
    return mechanism, grid, some_gradient(rng, grid, draw(st.sampled_from(KINDS))), user


def budgeted_energy(gradient, clip=1.0):
    return max(gradient @ gradient, (LEAST_NORM * clip) ** 2)


@given(allocations())
@settings(max_examples=300)
def test_the_budget_is_spent_exactly(case):
    mechanism, grid, gradient, user = case
    variances = mechanism.variances(gradient, grid, user)
    assert (variances >= 0).all()
    spent = mechanism.noise_budget * budgeted_energy(gradient)
    assert variances.sum() == pytest.approx(spent, rel=1e-9)


@given(allocations())
@settings(max_examples=100)
def test_noise_lies_on_a_plane_above_the_gradient(case):
    mechanism, grid, gradient, user = case
    assume(mechanism.noise_budget > 1e-3)
    variances = mechanism.variances(gradient, grid, user)
    active = variances > 1e-9 * variances.max()
    assume(active.sum() >= 4)
    energy = gradient**2 + variances
    design = np.column_stack([grid.centres, np.ones(grid.cells)])
    plane, *_ = np.linalg.lstsq(design[active], energy[active], rcond=None)
    scale = energy.max()
    np.testing.assert_allclose(design[active] @ plane, energy[active], atol=1e-7 * scale)


def problem_of(mechanism, grid, gradient, user, kind=Problem):
    return kind(gradient, grid, user, mechanism.noise_budget, mechanism.variance_weight(grid.cells))


@pytest.mark.parametrize("budget", [1, 10, 50])
@pytest.mark.parametrize("tradeoff", [1, 10, 100])
@pytest.mark.parametrize("kind", ["peaked", "sparse", "one cell"])
def test_the_plane_is_as_good_as_algorithm_1_and_brute_force(budget, tradeoff, kind):
    rng = np.random.default_rng([budget, tradeoff, len(kind)])
    mechanism = vm.GeometryAligned(noise_budget=budget, tradeoff=tradeoff)
    gradient = some_gradient(rng, GRID, kind)
    user = rng.uniform(GRID.centres.min(0), GRID.centres.max(0))
    problem = problem_of(mechanism, GRID, gradient, user, CompiledProblem)
    ours = problem.objective_of_variances(mechanism.variances(gradient, GRID, user))
    a = algorithm1(problem)
    theirs = problem.at(a, 1.0)
    best = brute_force(problem, directions=72, slopes=30)
    size = max(abs(theirs), abs(best))
    assert ours >= theirs - 1e-6 * size
    assert ours >= best - 1e-6 * size


def test_compiled_algorithm_1_is_the_plain_one():
    rng = np.random.default_rng(5)
    gradient = some_gradient(rng, GRID, "peaked")
    arguments = (ALIGNED, GRID, gradient, np.array([10.0, 60.0]))
    plain, compiled = problem_of(*arguments), problem_of(*arguments, CompiledProblem)
    u = np.array([0.6, 0.8])
    for r in (0.0, 0.5, 3.0, 20.0):
        assert compiled.at(u, r) == pytest.approx(plain.at(u, r), rel=1e-10)


@given(allocations())
@settings(max_examples=60)
def test_no_small_change_of_the_plane_improves_it(case):
    mechanism, grid, gradient, user = case
    assume(0.1 <= mechanism.noise_budget <= 1e3 and gradient.any() and mechanism.tradeoff <= 100)
    problem = problem_of(mechanism, grid, gradient, user)
    variances = mechanism.variances(gradient, grid, user)
    here = problem.objective_of_variances(variances)
    z = problem.q + variances * grid.cells / ((1 + mechanism.noise_budget) * (gradient @ gradient))
    bias = z @ problem.c / len(z) - problem.p
    slope = bias / problem.kappa  # a = e/κ at the optimum
    assert problem.at(slope, 1.0) == pytest.approx(here, rel=1e-6, abs=1e-9)
    for angle in np.linspace(0, 2 * np.pi, 8, endpoint=False):
        turn = np.array([np.cos(angle), np.sin(angle)])
        for size in (1e-3, 0.1, 1.0):
            assert problem.at(slope + size * turn, 1.0) <= here + 1e-9 * max(1, abs(here))


def test_no_budget_no_noise():
    gradient = some_gradient(np.random.default_rng(0), GRID, "peaked")
    for mechanism in (
        vm.GeometryAligned(noise_budget=0),
        vm.UniformNoise(noise_budget=0),
        vm.NoNoise(),
    ):
        assert not mechanism.variances(gradient, GRID, [0.0, 50.0]).any()


def noise_centroid(tradeoff, user, budget=50):
    gradient = some_gradient(np.random.default_rng(0), GRID, "peaked")
    mechanism = vm.GeometryAligned(noise_budget=budget, tradeoff=tradeoff)
    variances = mechanism.variances(gradient, GRID, user)
    return variances @ GRID.centres / variances.sum(), variances


def test_small_tradeoffs_lean_away_from_the_user_and_large_ones_flatten():
    user = np.array([0.0, 50.0])
    away = [np.linalg.norm(noise_centroid(rho, user)[0] - user) for rho in (0, 1, 10, 50, 100, 1e7)]
    assert all(np.diff(away) < 1e-9)
    middle = GRID.centres.mean(axis=0)
    np.testing.assert_allclose(noise_centroid(1e7, user)[0], middle, atol=0.2)
    nearest, farthest = (
        f(np.linalg.norm(GRID.centres - user, axis=1)) for f in (np.argmin, np.argmax)
    )
    variances = noise_centroid(0, user)[1]
    assert variances[farthest] == variances.max()
    assert variances[nearest] == 0


def test_a_user_outside_the_grid_pushes_the_noise_to_the_far_side():
    centroid, _ = noise_centroid(1, np.array([-200.0, 58.0]))
    assert centroid[0] > GRID.centres[:, 0].mean() + 5


def test_a_peak_above_the_budget_gets_no_noise():
    gradient = np.zeros(GRID.cells)
    gradient[77] = 1.0
    variances = vm.GeometryAligned(noise_budget=0.5, tradeoff=1e6).variances(
        gradient, GRID, [0.0, 50.0]
    )
    assert variances[77] == 0
    assert (np.delete(variances, 77) > 0).all()


def test_a_zero_gradient_is_hidden():
    zero = np.zeros((1, GRID.cells))
    for mechanism in (ALIGNED, vm.UniformNoise(noise_budget=10)):
        sent = mechanism.protect(zero, GRID, [[0.0, 50.0]], [noise.draw(0, "u", 0)])
        assert (sent.uploads != 0).mean() > 0.4
        assert sent.noise_energy[0] == pytest.approx(10 * LEAST_NORM**2)


@pytest.mark.parametrize("name", ["none", "uniform", "aligned"])
def test_upload_noise_treats_users_one_by_one_or_together_alike(name):
    rng = np.random.default_rng(3)
    mechanism = MECHANISMS[name](clip=0.5)
    gradients = np.array([some_gradient(rng, GRID, kind) for kind in KINDS]) * 2
    places = rng.uniform(0, 50, (len(KINDS), 2))
    draws = [noise.draw(1, i, 4) for i in range(len(KINDS))]
    together = mechanism.protect(gradients, GRID, places, draws)
    for i in range(len(KINDS)):
        alone = mechanism.protect(gradients[i : i + 1], GRID, places[i : i + 1], draws[i : i + 1])
        np.testing.assert_array_equal(alone.uploads[0], together.uploads[i])
        assert alone.norms[0] == together.norms[i]
    clipped = gradients * np.minimum(1, 0.5 / np.maximum(together.norms, 1e-300))[:, None]
    variances = mechanism.variances(clipped, GRID, places)
    np.testing.assert_allclose(variances.sum(axis=1), together.noise_energy)
    silent = variances == 0
    np.testing.assert_allclose(together.uploads[silent], clipped[silent])


@pytest.mark.parametrize("name", ["uniform", "aligned"])
def test_noise_has_its_variance(name):
    rng = np.random.default_rng(0)
    mechanism = MECHANISMS[name](noise_budget=5.0)
    gradient = some_gradient(rng, GRID, "peaked")[None]
    variances = mechanism.variances(gradient, GRID, [[0.0, 50.0]])[0]
    repeats = 2000
    noises = (
        np.array(
            [
                mechanism.protect(gradient, GRID, [[0.0, 50.0]], [noise.draw(0, i, 0)]).uploads[0]
                for i in range(repeats)
            ]
        )
        - gradient
    )
    # The mean of squares of n normals has relative deviation √(2/n): six of them.
    active = variances > 0
    ratio = (noises**2).mean(axis=0)[active] / variances[active]
    assert np.abs(ratio - 1).max() < 6 * np.sqrt(2 / repeats)
    assert np.abs(noises.mean(axis=0)[active] / np.sqrt(variances[active])).max() < 6 / np.sqrt(
        repeats
    )


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("noise_budget", -1), ("noise_budget", float("nan")), ("tradeoff", -1), ("clip", 0)],
)
def test_wrong_mechanisms_are_refused(parameter, value):
    with refused(ConfigurationError, value, parameter=parameter):
        vm.GeometryAligned(**{parameter: value})


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_passes_the_checks_for_all(name):
    mechanism = MECHANISMS[name](clip=0.5)
    if name == "aggregate":
        mechanism = mechanism.with_noise(2.0)
    if name == "privunit":
        mechanism = replace(mechanism, blanket=0.1, cap=0.2)
    check_mechanism(mechanism)


def test_what_is_no_mechanism_is_not_read_back():
    with pytest.raises(DataError):
        from_plain({"type": "Rot13"}, Mechanism)


@dataclass(frozen=True, kw_only=True)
class Broken(vm.NoNoise):
    """No noise, with one thing that a mechanism must not do."""

    fault: str = ""

    sums_in_place = True

    def answer(self, raw, grid, draws, cohort):
        if self.fault == "takes anything":
            raw = replace(raw, height_gradient=np.nan_to_num(raw.height_gradient))
        sent = super().answer(raw, grid, draws, cohort)
        if self.fault == "looks at others":
            return replace(sent, uploads=sent.uploads - sent.uploads.mean(axis=0))
        if self.fault == "sends too much":
            return replace(sent, uploads=sent.uploads * 1e3)
        if self.fault == "forgets weights":
            return replace(sent, weights=sent.weights[:-1])
        if self.fault == "sums otherwise":
            return replace(sent, uploads=sent.uploads * 0.5)
        return sent


def test_who_changes_the_answer_is_not_added_up_as_if_it_had_not():
    @dataclass(frozen=True, kw_only=True)
    class EveryOther(vm.NoNoise):
        def answer(self, raw, grid, draws, cohort):
            sent = super().answer(raw, grid, draws, cohort)
            return replace(
                sent, uploads=sent.uploads * (np.arange(raw.height_gradient.shape[1]) % 2)
            )

    scene = vm.Scene.synthetic(3, size=90.0, buildings=3, base_stations=12)
    data = scene.measure(users=9, links_per_user=9, seed=1)
    kept = vm.Recording(keep_uploads="all")
    maps = [
        vm.train(data, scene.grid, mechanism=kind(), rounds=2, seed=1, recording=recording)
        for kind in (EveryOther, vm.NoNoise)
        for recording in (None, kept)
    ]
    heights = [run.radio_map.heights for run in maps]
    np.testing.assert_array_equal(heights[0], heights[1])
    np.testing.assert_array_equal(heights[2], heights[3])
    assert not np.array_equal(heights[0], heights[2])


@pytest.mark.parametrize(
    "fault",
    ["takes anything", "looks at others", "sends too much", "forgets weights", "sums otherwise"],
)
def test_the_checks_find_what_is_wrong_with_a_mechanism(fault):
    check_mechanism(Broken())
    with pytest.raises(AssertionError):
        check_mechanism(Broken(fault=fault))


def test_wrong_gradients_are_refused():
    with refused(ConfigurationError, 180, "(7,)"):
        ALIGNED.variances(np.zeros(7), GRID, [0.0, 0.0])
    with refused(ConfigurationError, "finite"):
        ALIGNED.variances(np.full(180, np.nan), GRID, [0.0, 0.0])
    with refused(ConfigurationError, "clip"):
        ALIGNED.variances(np.ones(180), GRID, [0.0, 0.0])
    with refused(ConfigurationError, "2 gradients", "positions"):
        ALIGNED.variances(np.zeros((2, 180)), GRID, [[0.0, 0.0]])


def test_seeded_noise_depends_on_seed_client_and_round_only():
    base = noise.draw(1, "a", 2).normals(50)
    np.testing.assert_array_equal(noise.draw(1, "a", 2).normals(50), base)
    for other in (noise.draw(2, "a", 2), noise.draw(1, "b", 2), noise.draw(1, "a", 3)):
        assert abs(np.corrcoef(other.normals(50), base)[0, 1]) < 0.7
        assert not np.array_equal(other.normals(50), base)


def test_words_are_those_of_numpys_generator():
    seed, words = np.array([1, 2**63, 3], dtype=np.uint64), np.empty(1000, dtype=np.uint64)
    sampling.fill_words(seed, words)
    theirs = np.random.SFC64(0)
    state = theirs.state
    state["state"]["state"] = np.append(seed, np.uint64(1))
    theirs.state = state
    np.testing.assert_array_equal(words, theirs.random_raw(1012)[12:])


def test_seeded_normals_are_normal():
    from scipy.stats import chi2, kstest, norm

    count = 1_000_000
    x = noise.draw(5, "a", 0).normals(count)
    # Each of these fails for one true sample in a million.
    assert kstest(x, "norm").pvalue > 1e-6
    for far in (3.0, 3.442619855899, 4.0):  # before the tail, where it begins, and in it
        expected = count * norm.sf(far)
        for side in (x, -x):
            assert abs(np.sum(side > far) - expected) < 5 * np.sqrt(expected)
    assert abs(np.sum(x > 0) - count / 2) < 5 * np.sqrt(count) / 2
    low, high = chi2.ppf([5e-7, 1 - 5e-7], count) / count
    assert low < np.mean(x**2) < high
    # Neighbours, and numbers that are one state apart, have nothing in common.
    for apart in (1, 2, 3):
        assert abs(np.mean(x[apart:] * x[:-apart])) < 5 / np.sqrt(count)


def test_no_noise_is_drawn_where_there_is_to_be_none():
    variances = np.array([4.0, 0.0, 1.0, 0.0, 9.0])
    values = np.zeros(5)
    noise.draw(5, "a", 0).add_noise(values, variances)
    expected = noise.draw(5, "a", 0).normals(3) * [2.0, 1.0, 3.0]
    np.testing.assert_array_equal(values[variances > 0], expected)
    assert (values[variances == 0] == 0).all()


def test_each_purpose_has_its_own_words():
    draw = noise.draw(1, "a", 2)
    np.testing.assert_array_equal(draw.words(9, "coin"), draw.words(9, "coin"))
    assert not np.array_equal(draw.words(9, "coin"), draw.words(9, "noise"))
    system = noise.draw(None, "a", 2)
    assert not np.array_equal(system.words(9, "coin"), system.words(9, "coin"))


def test_system_noise_is_standard_normal_and_never_repeats():
    from scipy.stats import kstest

    first, second = (noise.draw(None, "a", 0).normals(20_000) for _ in range(2))
    assert not np.array_equal(first, second)
    # A true sample fails this once in a million runs.
    assert kstest(first, "norm").pvalue > 1e-6
    assert np.isfinite(first).all()
    # Of 52 bits two alike among so many are there once in 10⁷ samples; of 32 bits, nearly always.
    assert len(np.unique(first)) == len(first)


def test_system_noise_has_its_variances_and_is_drawn_for_each_cell():
    from scipy.stats import chi2

    values, variances = np.zeros(40_000), np.tile([4.0, 0.0, 9.0, 0.0], 10_000)
    noise.draw(None, "a", 0).add_noise(values, variances)
    assert (values[variances == 0] == 0).all()
    low, high = chi2.ppf([5e-7, 1 - 5e-7], 10_000) / 10_000  # once in a million samples outside
    for variance in (4.0, 9.0):
        assert low < np.mean(values[variances == variance] ** 2) / variance < high
    assert len(np.unique(values)) == 20_001


def test_the_least_of_the_systems_bits_are_a_finite_number(monkeypatch):
    monkeypatch.setattr(noise.os, "urandom", bytes)
    assert 9 < noise.system_normals(1)[0] < 10
