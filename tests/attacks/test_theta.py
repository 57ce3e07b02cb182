"""Attacks on gradients of θ in the clear: moments against draws, runs that show θ or cover it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import veilmap as vm
from commands import run as command
from refusals import refused
from veilmap.attacks import GradientInversion, JointInversion, MatchedFilter, ThetaInversion
from veilmap.attacks.candidates import Candidates
from veilmap.attacks.refinement import Leaves, refined
from veilmap.attacks.theta_likelihood import ThetaLikelihood
from veilmap.attacks.theta_moments import Design, ExpectedResiduals, ExpectedSums
from veilmap.auditing.audit import battery
from veilmap.errors import ConfigurationError
from veilmap.federation import Broadcast, Model, Participation, Run, SeenRound
from veilmap.model.propagation import at_100_m

SPREAD = 4.0  # dB


@pytest.fixture(scope="module")
def town():
    scene = vm.Scene.synthetic(0, size=120.0, buildings=6, base_stations=60)
    data = scene.measure(users=25, links_per_user=60, seed=0)
    return scene, data, dict(zip(data.users.tolist(), data.mean_positions(), strict=True))


def trained(town, theta="clear", **settings):
    scene, data, _ = town
    mechanism = vm.GeometryAligned(noise_budget=50, theta=theta)
    recording = vm.Recording(keep_uploads={0, 9, 19, 29})
    return vm.train(
        data, scene.grid, mechanism=mechanism, rounds=30, seed=0, recording=recording, **settings
    )


@pytest.fixture(scope="module")
def clear_run(town):
    return trained(town)


@pytest.fixture(scope="module")
def covered_run(town):
    return trained(town, "sum")


def medians(estimates, truth):
    return {when: float(np.median(each)) for when, each in estimates.errors(truth).items()}


# Moments.


def drawn(place, best, broadcasts, stations, links, users):
    """∂F/∂θ of users at one place who heard stations at random, (users, R, 4)."""
    rng = np.random.default_rng(1)
    heard = np.array([rng.permutation(len(stations))[:links] for _ in range(users)])
    gains = best.predict(np.tile(place, (len(stations), 1)), stations)
    measured = gains[heard] + SPREAD * rng.standard_normal(heard.shape)
    data = vm.Measurements(
        np.repeat(np.arange(users), links), np.tile(place, (users * links, 1)),
        stations[heard.ravel()], measured.ravel(),
    )  # fmt: skip
    sent = [vm.local_gradients(one, data).theta_gradient for one in broadcasts]
    return np.stack(sent, axis=1)


@pytest.mark.parametrize("links", [30, 12])
def test_moments_are_those_of_users_who_heard_any_stations(links):
    scene = vm.Scene.synthetic(1, size=90.0, buildings=4, base_stations=30)
    rng, cells = np.random.default_rng(0), scene.grid.cells
    best, *broadcasts = (vm.RadioMap(scene.grid, rng.uniform(0, 8, cells)) for _ in range(3))
    place, users = np.array([40.3, 51.2, 1.5]), 20_000
    sent = drawn(place, best, broadcasts, scene.base_stations, links, users)
    sent = (sent @ at_100_m(2).T).reshape(users, -1)
    candidates = Candidates(scene.grid, 1.5, scene.base_stations, best)
    rounds = tuple(
        SeenRound(Broadcast(i, one), (), np.zeros((0, cells)), np.zeros((0, 4)), np.zeros(0))
        for i, one in enumerate(broadcasts)
    )
    expected = ThetaLikelihood(candidates, rounds, SPREAD, 30).expected(place[None, None, :2])
    covariance = expected.covariance(links)[0]
    variance = np.diag(covariance)
    off = np.abs(sent.mean(axis=0) - expected.mean[0])
    assert (off < 5 * np.sqrt(variance / users) + 1e-12).all()
    # Sample covariances of normal numbers scatter by √((C_ii C_jj + C_ij²)/n).
    scatter = np.sqrt((np.outer(variance, variance) + covariance**2) / users)
    assert (np.abs(np.cov(sent.T) - covariance) < 6 * scatter + 1e-12).all()


@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=4), st.integers(1, 3), st.integers(1, 3),
    st.integers(1, 9), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_moments_of_grids_are_what_sums_over_stations_say(
    shape, rounds, parameters, stations, seed
):
    rng = np.random.default_rng(seed)
    by_theta = rng.normal(size=(*shape, rounds, parameters, stations))
    residuals = rng.normal(0, 5, (*shape, rounds, stations))
    first = int(rng.integers(shape[-2]))
    rows = slice(first, int(rng.integers(first, shape[-2])) + 1)
    places = np.prod(shape)
    design = Design(
        by_theta.reshape(places, rounds, parameters, stations),
        residuals.reshape(places, rounds, stations), tuple(shape), rows,
    )  # fmt: skip
    found = ExpectedSums.at(design, SPREAD, stations)
    expected = naive.sums_moments(by_theta, residuals, rows, SPREAD, (4 / 12) ** 0.5)
    for one, other in zip((found.mean, found.noise, found.sampling), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_with_offsets_single_residuals_are_what_their_gradients_say(town):
    scene, data, _ = town
    run = trained(town, model=Model(calibrate=["stations"]))
    seen, bs = run.transcript.uploads(9), run.transcript.bs
    candidates = Candidates.of(run.transcript, 1.5)
    likelihood = ThetaLikelihood(candidates, (seen,), SPREAD, len(candidates.stations))
    own = data.select(data.user == seen.clients[3])
    residuals = own.gain_db - seen.broadcast.radio_map.predict_links(own)
    (users, heard), *_ = likelihood.heard([0])
    row_of = {one: row for row, one in enumerate(bs.tolist())}
    rows = [row_of[str(one)] if str(one) in row_of else row_of[one] for one in own.bs.tolist()]
    found = heard.residuals[0, list(users).index(3), rows, 0]
    np.testing.assert_allclose(found, residuals, rtol=1e-9, atol=1e-9)
    # At the user's own place nothing is left of the laws' sums.
    expected = likelihood.expected(own.user_xyz[:1, None, :2])
    assert isinstance(expected, ExpectedResiduals)
    off, _ = expected._sums(heard.of(np.array([list(users).index(3)])))
    assert np.abs(off).max() < 1e-9


# Attacks.


def test_several_rounds_of_theta_alone_give_users_away(town, clear_run):
    found = medians(ThetaInversion().locate(clear_run.transcript), town[2])
    assert found["all"] < 1  # metres
    assert min(found[0], found[29]) > found["all"]


def test_what_uploads_hold_of_h_does_not_matter_to_it(clear_run):
    seen = clear_run.transcript.uploads(9)
    blank = replace(seen, uploads=np.zeros_like(seen.uploads))
    some = (replace(clear_run.transcript, rounds={9: each}) for each in (seen, blank))
    one, other = (ThetaInversion().locate(each).placed["all"].xy for each in some)
    np.testing.assert_array_equal(one, other)


def test_both_gradients_together_tell_more_than_either(town, clear_run):
    truth, transcript = town[2], clear_run.transcript
    starts = MatchedFilter().locate(transcript)
    by_heights = GradientInversion().locate(transcript, starts)
    by_theta = ThetaInversion().locate(transcript)
    earlier = {each.attack: each for each in (starts, by_heights, by_theta)}
    joint = medians(JointInversion().locate_after(transcript, earlier), truth)
    single = [medians(each, truth) for each in (by_heights, by_theta)]
    finest = 0.02  # metres: of the cells that are compared in the end
    assert all(joint[when] < min(each[when] for each in single) + finest for when in joint)
    assert joint[9] < 0.9 * single[0][9]


def test_with_offsets_one_round_may_be_enough(town):
    run = trained(town, model=Model(calibrate=["stations"]))
    found = medians(ThetaInversion().locate(run.transcript), town[2])
    assert found[9] < 5
    assert found["all"] < 0.1


def test_users_who_missed_rounds_are_found_by_those_they_took_part_in(town):
    run = trained(town, participation=Participation(share=0.7))
    found = ThetaInversion().locate(run.transcript)
    rounds = run.transcript.rounds
    client = next(c for c in rounds[0].clients if c not in rounds[9].clients)
    own = {n: seen.only({client}) for n, seen in rounds.items() if client in seen.clients}
    alone = ThetaInversion().locate(replace(run.transcript, rounds=own))
    everybody = found.placed["all"]
    np.testing.assert_allclose(everybody.of([client]), alone.placed["all"].of([client]), atol=0.05)


def test_what_no_place_explains_says_nothing(town, clear_run):
    rng = np.random.default_rng(2)
    rounds = {
        number: replace(seen, theta_gradient=100 * rng.normal(size=seen.theta_gradient.shape))
        for number, seen in clear_run.transcript.rounds.items()
    }
    found = ThetaInversion().locate(replace(clear_run.transcript, rounds=rounds))
    guess = town[0].grid.centres.mean(axis=0)
    np.testing.assert_allclose(found.placed["all"].xy, np.tile(guess, (25, 1)), atol=0.1)


# Cells.


def test_the_median_place_is_where_half_of_the_probability_is():
    xy = np.array([[[0.0, 0.0], [10.0, 0.0], [4.0, 8.0]]])
    sure = Leaves(xy, np.log(np.array([[0.6, 0.2, 0.2], [1.0, 1e-9, 1e-9]])))
    np.testing.assert_allclose(sure.medians(), 0, atol=0.02)
    square = Leaves(np.array([[[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 4.0]]]), np.zeros((1, 4)))
    np.testing.assert_allclose(square.medians(), 2)


def test_dividing_cells_finds_the_top_of_a_hill_and_loses_no_probability():
    grid, top = vm.Grid(4.0, (5, 5)), np.array([[7.3, 12.9], [17.1, 3.3]])

    def height(users, xy):
        return -0.5 * ((xy - top[users][:, None, None]) ** 2).sum(axis=-1) / 2.0**2

    start = np.stack([height(np.full(1, i), grid.centres.reshape(1, 5, 5, 2)) for i in (0, 1)])
    cells = Leaves(grid.centres[None], start.reshape(2, -1))
    leaves = refined(cells, 4.0, height)
    np.testing.assert_allclose(leaves.modes(), top, atol=4.0)
    probability = np.exp(leaves.log_probability).sum(axis=1)
    np.testing.assert_allclose(probability, 2 * np.pi * 2.0**2 / 4.0**2, rtol=0.2)


# Covered gradients of θ.


def test_covering_theta_changes_no_bit_of_the_map(clear_run, covered_run):
    np.testing.assert_array_equal(clear_run.radio_map.heights, covered_run.radio_map.heights)
    np.testing.assert_array_equal(clear_run.radio_map.theta, covered_run.radio_map.theta)


def test_of_a_covered_user_only_the_gradient_of_h_is_seen(town):
    scene, data, _ = town
    keep = np.ones(len(data), dtype=bool)
    keep[:30] = False  # the first user has half of the links
    uneven = scene, data.select(keep), None
    clear, covered = (trained(uneven, theta).transcript.rounds[9] for theta in ("clear", "sum"))
    assert covered.theta_gradient.shape == (25, 0)
    assert len(np.unique(covered.weight)) == 1 < len(np.unique(clear.weight))
    sent = [seen.weight[:, None] * seen.uploads for seen in (clear, covered)]
    np.testing.assert_allclose(sent[0], sent[1], rtol=1e-5)


def test_attacks_on_theta_do_not_apply_where_it_is_covered(clear_run, covered_run, tmp_path):
    reading = {ThetaInversion.name, JointInversion.name}
    assert reading <= {attack.name for attack in battery(clear_run.transcript)}
    assert not reading & {attack.name for attack in battery(covered_run.transcript)}
    for attack in (ThetaInversion(), JointInversion()):
        with pytest.raises(ConfigurationError) as caught:
            attack.locate(covered_run.transcript)
        assert caught.value.parameter == "theta"


def test_gradients_of_h_are_read_as_before(town, covered_run):
    found = GradientInversion().locate(covered_run.transcript)
    assert medians(found, town[2])["all"] < 3


def test_other_words_for_theta_are_refused():
    with refused(ConfigurationError, "theta", "clear"):
        vm.GeometryAligned(theta="hidden")


def test_the_command_line_covers_theta(capsys, tmp_path):
    options = ["--users", "5", "--rounds", "2", "--seed", "0", "--keep-uploads", "all"]
    code, _, _ = command(
        capsys, "train", "--theta", "sum", *options, "--out", str(tmp_path / "run")
    )
    assert code == 0
    transcript = Run.load(tmp_path / "run").transcript
    assert transcript.mechanism.theta == "sum"
    assert not transcript.shows_theta
    code, _, err = command(capsys, "train", "--theta", "no", "--out", str(tmp_path / "other"))
    assert (code, err.count("\n")) == (2, 1)
    assert "--theta" in err


def test_nodes_that_send_single_updates_cannot_cover_theta(town):
    pytest.importorskip("flwr")
    from veilmap.flower import Simulation

    with refused(ConfigurationError, "theta", "server_sees"):
        trained(town, "sum", engine=Simulation())
