"""Attacks against references, against uploads without noise, and against nothing but noise."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

import naive
import veilmap as vm
from strategies import rich_maps_and_data
from veilmap import testing
from veilmap._kernels import allocation
from veilmap._kernels import candidates as kernels
from veilmap._kernels.arguments import Axes, Sites, Uploads
from veilmap.attacks import (
    Differencing,
    Estimates,
    GradientInversion,
    JointInversion,
    MatchedFilter,
    Placed,
    PlaneInversion,
    PlaneSubtraction,
    Posterior,
    PriorOnly,
    ThetaInversion,
    WeightedCentroid,
)
from veilmap.attacks.base import medians
from veilmap.attacks.candidates import Candidates, block_of_cell, coarser, expected_gradients
from veilmap.attacks.matched_filter import added, matches, matches_in_place
from veilmap.attacks.plane_subtraction import noise_variances
from veilmap.attacks.sum_location import LeftOver, SumMatchedFilter
from veilmap.errors import ConfigurationError, DataError
from veilmap.federation import SeenRound, SeenSum, Transcript
from veilmap.model.filtering import filtered
from veilmap.privacy.mechanisms.aligned import unit_free

GRID = vm.Grid(2.0, (10, 20))
ATTACKS = {
    "prior": PriorOnly,
    "centroid": WeightedCentroid,
    "plane-inversion": PlaneInversion,
    "plane-subtraction": PlaneSubtraction,
    "matched-filter": MatchedFilter,
    "gradient-inversion": GradientInversion,
    "theta-inversion": ThetaInversion,
    "joint-inversion": JointInversion,
    "differencing": Differencing,
}
ROUGH = {"prior", "theta-inversion"}  # one round's sums of residuals fit many places
ON_UPLOADS = [name for name, kind in ATTACKS.items() if "uploads" in kind.sees]


def quick(names):
    """The same; what takes longest, and is made of two others, is tried by `make test-slow`."""
    slow = {"joint-inversion": pytest.mark.slow}
    return [pytest.param(name, marks=slow.get(name, ())) for name in names]


def rms(errors):
    return float(np.sqrt(np.mean(np.square(errors))))


def transcript_of(uploads, grid=GRID, mechanism=None):
    """A transcript with one round of these uploads."""
    mechanism = mechanism or vm.NoNoise()
    uploads = np.asarray(uploads, dtype=np.float32)
    n = len(uploads)
    flat = vm.federation.Broadcast(0, vm.RadioMap(grid, np.full(grid.cells, 4.0)))
    seen = SeenRound(flat, tuple(range(n)), uploads, np.zeros((n, 4)), np.full(n, 10))
    west, east, south, north = grid.extent
    stations = np.random.default_rng(0).uniform([west, south, 50], [east, north, 50], (10, 3))
    return Transcript(grid, mechanism, stations, {0: seen})


@pytest.fixture(scope="module")
def city():
    scene = vm.Scene.synthetic(0)
    data = scene.measure(users=40, seed=0)
    truth = dict(zip(data.users.tolist(), data.mean_positions(), strict=True))
    return scene, data, truth


@pytest.fixture(scope="module")
def open_run():
    """Three rounds of that city without noise, every upload kept."""
    return testing.city()


def only(transcript, *rounds):
    return replace(transcript, rounds={n: transcript.rounds[n] for n in rounds})


# Each attack, as every attack must behave.


@pytest.mark.parametrize("name", quick(name for name in ON_UPLOADS if name not in ROUGH))
def test_without_noise_the_first_round_gives_users_away(name, city, open_run):
    scene, _, truth = city
    found = ATTACKS[name]().locate(only(open_run.transcript, 0))
    assert rms(found.errors(truth)[0]) < 2 * scene.grid.cell_size
    assert rms(found.errors(truth)["all"]) < 2 * scene.grid.cell_size


@pytest.mark.parametrize("name", quick(ATTACKS))
def test_every_attack_passes_the_checks_for_all(name):
    testing.check_attack(ATTACKS[name]())


@dataclass(frozen=True)
class Broken(PriorOnly):
    """Guessing, with one thing that an attack must not do."""

    fault: str = ""

    def locate(self, transcript):
        if self.fault == "takes anything" and not transcript.rounds:
            return Estimates(self.name, {})
        found = super().locate(transcript)
        if self.fault == "knows the truth":
            truth = testing.city().truth
            placed = {
                when: replace(one, xy=np.array([truth.get(who, [0, 0]) for who in one.clients]))
                for when, one in found.placed.items()
            }
            return replace(found, placed=placed)
        if self.fault == "leaves the map":
            away = {when: replace(one, xy=one.xy - 1e4) for when, one in found.placed.items()}
            return replace(found, placed=away)
        return found


@pytest.mark.parametrize("fault", ["takes anything", "knows the truth", "leaves the map"])
def test_the_checks_find_what_is_wrong_with_an_attack(fault):
    testing.check_attack(Broken())
    with pytest.raises(AssertionError):
        testing.check_attack(Broken(fault=fault))


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: WeightedCentroid(0), "power"),
        (lambda: PlaneSubtraction(smoothing=-1), "smoothing"),
        (lambda: MatchedFilter(ways_to_differ=0), "ways_to_differ"),
        (lambda: GradientInversion(starts=0), "starts"),
        (lambda: GradientInversion(residual_db=0), "residual_db"),
        (lambda: Differencing(confidence=0), "confidence"),
        (lambda: PriorOnly(prior=[1.0]).guess(GRID), "prior"),
        (lambda: PriorOnly(prior=np.zeros(200)).guess(GRID), "prior"),
    ],
)
def test_wrong_parameters_are_refused(make, parameter):
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert caught.value.parameter == parameter


# What each one is.


def test_the_prior_is_the_middle_or_a_mean():
    np.testing.assert_allclose(PriorOnly().guess(GRID), [20.0, 10.0])
    weights = np.zeros(GRID.shape)
    weights[3, [4, 6]] = [1, 3]
    np.testing.assert_allclose(PriorOnly(weights).guess(GRID), [12.0, 7.0])


def test_centroids_are_what_the_formula_says():
    upload = np.zeros((2, 200))
    upload[0, [5, 8]] = [1.0, -2.0]
    upload[1] = np.random.default_rng(0).normal(size=200)
    transcript = transcript_of(upload)
    for power in (1, 2, 5, 10):
        weights = np.abs(upload) ** power
        expected = weights @ GRID.centres / weights.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(WeightedCentroid(power).positions(upload, transcript), expected)
    largest = WeightedCentroid(float("inf")).positions(upload, transcript)
    np.testing.assert_array_equal(largest[0], GRID.centres[8])


def test_huge_powers_do_not_overflow():
    upload = np.full((1, 200), 1e-200)
    upload[0, 3] = 1e200
    found = WeightedCentroid(10).positions(upload, transcript_of(np.zeros((1, 200))))
    np.testing.assert_allclose(found[0], GRID.centres[3])


def test_the_noise_plane_is_read_off_the_upload():
    grid = vm.Grid(3.0, (60, 80))
    rng = np.random.default_rng(1)
    x, y = grid.centres.T / 100
    true = np.maximum(0.5 * x - 0.8 * y + 0.4, 0)
    upload = np.sqrt(true) * rng.normal(size=grid.cells)
    upload[100:110] += 20.0  # the user's own gradient
    found = noise_variances(upload[None], grid)[0]
    # Squares scatter by √2 of their mean: at a corner, a fit of three parameters to 3,300 of
    # them is off by about √(2 · 3 · 4/3300) = 8 % at most.
    assert np.abs(found - true).max() < 0.1 * true.max()


def test_planes_are_found_back_from_their_centroids():
    grid = vm.Grid(3.0, (40, 50))
    x, y, _ = unit_free(grid, np.zeros((1, 2)))
    across, up = (axis.ravel() for axis in np.meshgrid(x, y))
    kappa = 0.1
    for v in ([0.0, 0.0], [0.2, -0.1], [-0.5, 0.3]):
        slope = np.array(v) / kappa
        low, high = -10.0, 10.0
        for _ in range(200):  # the offset that gives a mean of 1
            b = 0.5 * (low + high)
            plane = np.maximum(slope[0] * across + slope[1] * up + b, 0)
            low, high = (b, high) if plane.mean() < 1 else (low, b)
        centroid = np.array([[np.mean(plane * across), np.mean(plane * up)]])
        found = np.empty((1, 2))
        allocation.planes_with_centroids(centroid, kappa, Axes(x, y), found)
        np.testing.assert_allclose(found[0], v, atol=1e-6)


def test_the_aligned_noise_leads_back_to_its_user(city):
    scene, data, truth = city
    mechanism = vm.GeometryAligned(noise_budget=50, tradeoff=10)
    run = vm.train(
        data,
        scene.grid,
        mechanism=mechanism,
        rounds=1,
        seed=0,
        recording=vm.Recording(keep_uploads="all"),
    )
    misled = rms(WeightedCentroid(2).locate(run.transcript).errors(truth)[0])
    assert misled > 180
    assert rms(PlaneInversion().locate(run.transcript).errors(truth)[0]) < 30


@given(rich_maps_and_data())
@settings(max_examples=40)
def test_templates_are_the_gradients_of_users_at_candidates(case):
    radio_map, data = case
    places = np.array([own.user_xyz[0] for own in map(data.of_user, data.users.tolist())])
    stations = data.bs_xyz[: min(4, len(data))]
    rng = np.random.default_rng(0)
    gains = rng.normal(-80, 10, (len(places), len(stations)))
    made = expected_gradients(radio_map, places, stations, gains)
    for i, place in enumerate(places):
        each, predicted = naive.shares(radio_map, place, stations)
        each *= 2 / len(stations)
        expected = (gains[i] - predicted) @ each
        size = np.abs(expected).max() + np.abs(each).max() + 0.1  # e below 1e-10 is left out
        np.testing.assert_allclose(made.expected[i], expected, atol=2e-5 * size)
        np.testing.assert_allclose(made.shifted[i], each.sum(axis=0), atol=2e-5 * size)


def test_templates_sum_their_products_over_blocks(city):
    scene, _, _ = city
    radio_map = vm.RadioMap(scene.grid, np.full(scene.grid.cells, 4.0), sharpness=0.3)
    places = np.array([[40.0, 50.0, 1.5], [200.0, 100.0, 1.5]])
    made = expected_gradients(
        radio_map, places, scene.base_stations, np.full((2, len(scene.base_stations)), -80.0)
    )
    block_of = block_of_cell(scene.grid)
    pairs = (made.expected**2, made.shifted**2, made.expected * made.shifted)
    for number, product in enumerate(pairs):
        sums = [np.bincount(block_of, row) for row in product.astype(np.float64)]
        np.testing.assert_allclose(made.products[:, number], sums, rtol=1e-3, atol=1e-12)


@given(rich_maps_and_data(), st.integers(1, 5), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_matches_in_place_are_those_of_kept_templates(case, users, seed):
    radio_map, data = case
    rng, grid = np.random.default_rng(seed), radio_map.grid
    candidates = Candidates(grid, 1.5, np.ascontiguousarray(data.bs_xyz[:4]), radio_map)
    vars(candidates)["gains_at_centres"] = rng.normal(-80, 10, (grid.cells, len(data.bs_xyz[:4])))
    uploads = rng.normal(size=(users, grid.cells)).astype(np.float32)
    blocks = block_of_cell(grid)
    weights = rng.uniform(0.5, 2, (users, blocks.max() + 1)).astype(np.float32)
    found = matches_in_place(uploads, weights, radio_map, candidates)
    expected = matches(uploads, weights, blocks, candidates.templates(radio_map))
    # What is left out of a template holds up to 1e-4 of each of the upload's entries.
    size = np.sum(np.square(uploads) * weights[:, blocks], axis=1, keepdims=True)
    assert (np.abs(found - expected) < 0.01 * size).all()


@given(rich_maps_and_data())
@settings(max_examples=40)
def test_the_evidence_is_a_ratio_of_normal_densities(case):
    radio_map, data = case
    grid, rng = radio_map.grid, np.random.default_rng(1)
    stations = np.ascontiguousarray(data.bs_xyz[: min(5, len(data))])
    places = np.ascontiguousarray(data.user_xyz[:2])
    gains = rng.normal(-80, 10, (len(places), len(stations)))
    uploads = rng.normal(size=(2, grid.cells))
    variances = rng.uniform(0.5, 2, (2, grid.cells))
    counts = np.array([len(stations), max(1, len(stations) - 1)], dtype=np.float64)
    users = np.array([0, 1])[: len(places)]
    out = np.empty(len(places))
    kernels.log_evidence(
        start=0, stop=len(places), sites=Sites(places, stations, gains), users=users,
        model=radio_map.kernel_model, uploads=Uploads(uploads, variances, counts, clip=1.0),
        spread=4.0, most_cells=grid.cells, out=out,
    )  # fmt: skip
    for k, place in enumerate(places):
        expected = naive.log_evidence(
            radio_map, place, stations, gains[k], uploads[k], variances[k], counts[k], 1.0, 4.0
        )
        # Cells that carry less than 1e-4 of a noise variance are left out.
        assert out[k] == pytest.approx(expected, rel=1e-3, abs=5e-3 * grid.cells)


def test_the_defence_is_broken_by_attackers_who_know_it(city):
    scene, data, truth = city
    mechanism = vm.GeometryAligned(noise_budget=50)
    run = vm.train(
        data,
        scene.grid,
        mechanism=mechanism,
        rounds=60,
        seed=0,
        recording=vm.Recording(keep_uploads={0, 29, 49}),
    )
    filtered = MatchedFilter().locate(run.transcript)
    inverted = GradientInversion().locate(run.transcript, filtered)
    assert rms(WeightedCentroid(2).locate(run.transcript).errors(truth)[49]) > 180
    assert np.median(filtered.errors(truth)[49]) < 10
    assert np.median(inverted.errors(truth)[49]) < 5
    assert np.median(inverted.errors(truth)["all"]) < 1
    belief = filtered.posteriors["all"]
    assert np.median(belief.entropy()) < 1
    assert belief.covers(truth).mean() > 0.7


def test_large_grids_get_coarser_candidates():
    assert coarser(GRID, 10_000) is GRID
    large = vm.Grid(1.0, (301, 250), (5.0, 6.0))
    coarse = coarser(large, 10_000)
    assert coarse.cells <= 10_000
    assert coarse.cell_size == 3.0
    assert coarse.extent[0] == 5.0
    assert coarse.extent[1] >= large.extent[1]
    assert coarse.extent[3] >= large.extent[3]


def test_very_many_stations_are_thinned_out():
    transcript = transcript_of(np.zeros((1, 200)))
    many = replace(transcript, base_stations=np.ones((1201, 3)))
    assert len(Candidates.of(many, 1.5).stations) == 401


# Sums.


def sums_of(transcript, *groups, width=0.0):
    """What a server would see of these groups' uploads to the first broadcast, group by group.

    ``width`` is that of the filter that users apply, in cells.
    """
    seen = transcript.uploads(0)
    uploads = filtered(seen.uploads, transcript.grid.shape, width)
    rounds = {}
    for number, group in enumerate(groups):
        rows = [seen.clients.index(client) for client in group]
        broadcast = replace(seen.broadcast, round=number, filter_width=width)
        rounds[number] = SeenSum(
            broadcast,
            tuple(group),
            uploads[rows].mean(axis=0),
            seen.theta_gradient[rows].mean(axis=0),
            int(seen.weight[rows].sum()),
        )
    return replace(transcript, rounds=rounds, server_sees="sums")


@pytest.fixture(scope="module")
def remembered(open_run):
    """Templates of the first broadcast, which all of these sums answer."""
    transcript = open_run.transcript
    broadcast = transcript.uploads(0).broadcast.radio_map
    return Candidates.of(transcript, 1.5).answering(broadcast)


@pytest.mark.parametrize("width", [0.0, 2.1])
def test_two_sums_that_differ_by_one_user_give_that_user_away(city, open_run, remembered, width):
    scene, data, truth = city
    everybody = data.users.tolist()
    sums = sums_of(open_run.transcript, everybody, everybody[1:], width=width)
    found = Differencing().locate(sums, remembered)
    errors = dict(zip(found.placed["all"].clients, found.errors(truth)["all"], strict=True))
    assert errors[everybody[0]] < 2 * scene.grid.cell_size
    guess = np.array([np.linalg.norm(truth[c] - scene.grid.centres.mean(0)) for c in everybody[1:]])
    assert rms([errors[c] for c in everybody[1:]]) > 0.9 * rms(guess)


def test_candidates_coarser_than_the_map_work_on_filtered_sums(city, open_run):
    _, data, truth = city
    everybody = data.users.tolist()
    sums = sums_of(open_run.transcript, everybody, everybody[1:], width=2.1)
    coarse = Candidates.of(open_run.transcript, 1.5, 1000)
    assert coarse.grid.cells <= 1000 < sums.grid.cells
    found = Differencing().locate(sums, coarse)
    errors = dict(zip(found.placed["all"].clients, found.errors(truth)["all"], strict=True))
    assert errors[everybody[0]] < 2 * coarse.grid.cell_size


@pytest.mark.parametrize("width", [0.0, 2.1])
def test_changing_cohorts_give_most_users_away_even_in_sums(city, open_run, remembered, width):
    _, data, truth = city
    rng = np.random.default_rng(0)
    groups = [sorted(rng.choice(40, 20, replace=False).tolist()) for _ in range(25)]
    sums = sums_of(open_run.transcript, *groups, width=width)
    assert np.median(Differencing().locate(sums, remembered).errors(truth)["all"]) < 6


def test_sums_over_always_the_same_users_tell_no_more_than_guessing(city):
    scene, data, truth = city
    run = vm.train(
        data,
        scene.grid,
        server_sees="sums",
        rounds=4,
        seed=0,
        recording=vm.Recording(keep_uploads="all"),
    )
    assert all(isinstance(seen, SeenSum) for seen in run.transcript.rounds.values())
    guess = rms(PriorOnly().locate(run.transcript).errors(truth)["all"])
    errors = Differencing().locate(run.transcript).errors(truth)
    assert min(rms(each) for each in errors.values()) > 0.9 * guess
    with pytest.raises(DataError):
        run.transcript.uploads(0)


# Beliefs.


def test_a_posterior_is_what_probability_says():
    grid = vm.Grid(2.0, (1, 4))
    p = np.array([[0.5, 0.25, 0.125, 0.125], [0.25, 0.25, 0.25, 0.25]])
    belief = Posterior(grid, ("a", 7), np.log(p).astype(np.float32) + 3)
    np.testing.assert_allclose(belief.probability, p, rtol=1e-6)
    np.testing.assert_allclose(belief.entropy(), [1.75, 2.0], rtol=1e-6)
    np.testing.assert_array_equal(belief.credible_region(0.7)[0], [True, True, False, False])
    np.testing.assert_allclose(belief.modes()[0], [1.0, 1.0])
    np.testing.assert_allclose(belief.means()[1], [4.0, 1.0])
    assert belief.map_of(7).shape == (1, 4)
    here = {"a": np.array([3.0, 1.0]), 7: np.array([90.0, 1.0])}
    np.testing.assert_array_equal(belief.covers(here, 0.5), [False, False])
    np.testing.assert_array_equal(belief.covers(here, 0.8), [True, False])


def test_evidence_adds_up_over_rounds_for_those_who_were_there():
    grid = vm.Grid(1.0, (1, 3))
    one = Posterior(grid, ("a", "b"), np.array([[1, 0, 0], [0, 1, 0]], dtype=np.float32))
    two = Posterior(grid, ("b", "c"), np.array([[0, 2, 1], [0, 0, 5]], dtype=np.float32))
    total = added([one, two])
    assert total.clients == ("a", "b", "c")
    np.testing.assert_array_equal(total.evidence, [[1, 0, 0], [0, 3, 1], [0, 0, 5]])


def test_medians_over_rounds_ignore_one_bad_round():
    rounds = [
        Placed(("a",), np.array([[1.0, 2.0]])),
        Placed(("a", "b"), np.array([[1.2, 2.2], [5.0, 5.0]])),
        Placed(("a",), np.array([[900.0, -900.0]])),
    ]
    middle = medians(rounds)
    assert middle.clients == ("a", "b")
    np.testing.assert_allclose(middle.xy, [[1.2, 2.0], [5.0, 5.0]])


def test_errors_are_distances():
    found = Estimates("x", {0: Placed(("a",), np.array([[3.0, 4.0]]))})
    np.testing.assert_allclose(found.errors({"a": np.zeros(2)})[0], [5.0])


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0, 5.0, 10.0, 2.5, 100.0])
def test_powers_by_squaring_are_powers(power):
    from veilmap.attacks.centroid import centroids

    grid = vm.Grid(3.0, (8, 9))
    uploads = np.random.default_rng(0).normal(size=(5, grid.cells))
    transcript = vm.Transcript(grid, vm.NoNoise(), np.zeros((0, 3)))
    found = WeightedCentroid(power).positions(uploads, transcript)
    size = np.abs(uploads) / np.abs(uploads).max(axis=1, keepdims=True)
    np.testing.assert_allclose(found, centroids(size**power, grid), rtol=1e-12)


# What everybody else's contributions leave of a sum.


def left_over(transcript, noise_share, width=0.0):
    """What others leave of one round's sum, for each user, with noise of a share of the clip."""
    seen = transcript.uploads(0)
    grid, users = transcript.grid, len(seen.clients)
    mechanism = vm.AggregateGaussian(clip=transcript.mechanism.clip, noise_multiplier=1.0)
    clip = mechanism.summand(grid.cells, 0).clip
    added = filtered(seen.uploads, grid.shape, width)
    lengths = np.linalg.norm(added, axis=1, keepdims=True)
    added *= np.minimum(1, clip / np.maximum(lengths, 1e-30))
    deviation = noise_share * clip
    noisy = added + np.random.default_rng(0).normal(0, deviation, (users, grid.cells))
    broadcast = replace(seen.broadcast, filter_width=width)
    attack = SumMatchedFilter.of(replace(transcript, mechanism=mechanism))
    return attack, LeftOver(broadcast, noisy.astype(np.float32), deviation), seen.clients


@pytest.mark.parametrize("width", [0.0, 2.1])
def test_a_user_is_found_in_what_others_leave_without_noise_and_with_it_is_not(
    city, open_run, width
):
    scene, _, truth = city
    quiet, loud = (left_over(open_run.transcript, share, width) for share in (1e-3, 3.0))
    attack, left, clients = quiet
    belief = attack.posterior(clients, attack.evidence(left))
    xy = np.array([truth[client] for client in clients])
    off = np.linalg.norm(belief.modes() - xy, axis=1)
    assert np.median(off) < 2 * attack.candidates.grid.cell_size
    attack, left, _ = loud
    belief = attack.posterior(clients, attack.evidence(left))
    guess = np.linalg.norm(xy - scene.grid.centres.mean(axis=0), axis=1)
    assert rms(np.linalg.norm(belief.means() - xy, axis=1)) > 0.9 * rms(guess)


@pytest.mark.parametrize("width", [0.0, 2.1])
def test_evidence_of_what_others_leave_is_a_ratio_of_normal_densities(open_run, width):
    attack, left, _ = left_over(open_run.transcript, 0.5, width)
    evidence, grid = attack.evidence(left), open_run.transcript.grid
    clip = attack.mechanism.summand(grid.cells, 0).clip
    (first, *_) = attack.candidates.templates(left.broadcast.radio_map)
    for place in (0, 17, 111):
        added = filtered(first.expected[[place]], grid.shape, width)[0]
        added *= min(1, clip / np.linalg.norm(added)) * 0.9
        apart = norm.logpdf(left.heights, added, left.deviation)
        apart -= norm.logpdf(left.heights, 0, left.deviation)
        expected = apart.sum(axis=1)
        np.testing.assert_allclose(evidence[:, place], expected, rtol=1e-3, atol=1e-3)
