"""What one round tells about one user: the same as training sends and as attacks find."""

from dataclasses import replace

import numpy as np
import pytest

import flat
import veilmap as vm
from veilmap.attacks import Differencing, GradientInversion, MatchedFilter, WeightedCentroid
from veilmap.attacks.candidates import Candidates
from veilmap.auditing.exposure import NEED_TEMPLATES, SENT, Knobs, Witness
from veilmap.errors import ConfigurationError

ROUNDS = 12
KNOBS = Knobs(noise_budget=50, tradeoff=1, clip=1, power=2)


@pytest.fixture(scope="module")
def scene():
    return vm.Scene.synthetic(4, size=150, cell_size=5, buildings=5, base_stations=30)


@pytest.fixture(scope="module")
def data(scene):
    return scene.measure(users=6, links_per_user=30, seed=8)


def trained(scene, data, **options):
    return flat.train(data, scene.grid, rounds=ROUNDS, keep_uploads={0, ROUNDS - 1}, **options)


@pytest.fixture(scope="module")
def run(scene, data):
    return trained(scene, data, mechanism=vm.GeometryAligned(noise_budget=50), seed=0)


@pytest.fixture(scope="module")
def witness(run, data):
    made = Witness(run.transcript, data)
    made.prepare(0)
    return made


def test_what_is_computed_is_what_was_sent(witness):
    """The run's noise had seed 0, as this view's has: uploads agree to single precision."""
    for user in (0, 5):
        found = witness.upload(user, 0, KNOBS)
        sent, computed = (found.schemes[name].received for name in (SENT, "aligned"))
        np.testing.assert_allclose(computed.astype(np.float32), sent, rtol=1e-6, atol=1e-9)


def test_the_sum_is_what_a_server_of_sums_received(scene, data):
    sums = trained(
        scene, data, mechanism=vm.UniformNoise(noise_budget=50), seed=0, server_sees="sums"
    )
    witness = Witness(sums.transcript, data)
    witness.prepare(0)
    found = witness.sum(3, 0, KNOBS)
    assert found.summed == 6
    np.testing.assert_allclose(
        found.schemes["uniform"].received, found.schemes[SENT].received, rtol=1e-9, atol=1e-12
    )


def test_attacks_place_users_where_they_do_in_an_audit(run, witness):
    """One upload alone is placed as it is among all."""
    found = witness.upload(2, 0, KNOBS)
    alone = replace(run.transcript, rounds={0: run.transcript.rounds[0]})
    for attack in (WeightedCentroid(2), vm.attacks.PlaneInversion(), vm.attacks.PlaneSubtraction()):
        placed = attack.locate(alone).placed[0]
        expected = placed.xy[placed.clients.index(2)]
        np.testing.assert_allclose(found.schemes[SENT].estimates[attack.name], expected, atol=1e-3)


def test_remembered_templates_find_the_same_places(run, witness):
    """The sparse way and the plain one: nearly the same evidence, the same best places."""
    seen = replace(run.transcript, rounds={0: run.transcript.rounds[0]})
    broadcast = seen.rounds[0].broadcast.radio_map
    plain = MatchedFilter().locate(seen)
    quick = MatchedFilter().locate(seen, Candidates.of(seen, 1.5).answering(broadcast))
    np.testing.assert_array_equal(quick.placed[0].xy, plain.placed[0].xy)
    scale = np.ptp(plain.posteriors[0].evidence)
    np.testing.assert_allclose(
        quick.posteriors[0].evidence, plain.posteriors[0].evidence, atol=0.01 * scale
    )
    np.testing.assert_allclose(
        GradientInversion().locate(seen, quick).placed[0].xy,
        GradientInversion().locate(seen, plain).placed[0].xy,
        atol=0.5,
    )


def test_remembered_templates_unmix_sums_alike(scene, data):
    transcript = trained(scene, data, seed=0, server_sees="sums").transcript
    seen = replace(transcript, rounds={0: transcript.rounds[0]})
    broadcast = seen.rounds[0].broadcast.radio_map
    quick = Candidates.of(seen, 1.5).answering(broadcast)
    np.testing.assert_allclose(
        Differencing().locate(seen, quick).placed[0].xy,
        Differencing().locate(seen).placed[0].xy,
        atol=0.5,
    )


def test_templates_of_another_broadcast_are_made_as_ever(run):
    transcript = run.transcript
    first, last = (transcript.rounds[n].broadcast.radio_map for n in (0, ROUNDS - 1))
    remembered = Candidates.of(transcript, 1.5).answering(first)
    expected = next(iter(Candidates.of(transcript, 1.5).templates(last))).expected
    np.testing.assert_array_equal(next(iter(remembered.templates(last))).expected, expected)


def test_errors_are_distances_from_where_the_user_is(witness, data):
    found = witness.upload(1, 0, KNOBS)
    np.testing.assert_allclose(found.position, data.mean_positions()[1])
    estimate = found.schemes["uniform"].estimates["centroid ν = 2"]
    assert found.error("uniform", "centroid ν = 2") == pytest.approx(
        np.hypot(*(estimate - found.position))
    )


def test_without_budget_nothing_is_added_and_with_one_its_energy_is(witness):
    quiet = witness.upload(1, 0, replace(KNOBS, noise_budget=0))
    for name in ("uniform", "aligned"):
        np.testing.assert_array_equal(
            quiet.schemes[name].received, quiet.schemes["no noise"].received
        )
    assert not quiet.deviations.any()
    loud = witness.upload(1, 0, KNOBS)
    energy = np.sum(loud.schemes["no noise"].received ** 2)
    assert np.sum(loud.deviations**2) == pytest.approx(50 * energy)


def test_a_slider_moves_the_same_noise(witness):
    """The noise is drawn once: only its size follows μ, so that the picture does not flicker."""
    small, large = (
        witness.upload(1, 0, replace(KNOBS, noise_budget=budget)).schemes for budget in (1, 4)
    )
    noise = [
        schemes["uniform"].received - schemes["no noise"].received for schemes in (small, large)
    ]
    np.testing.assert_allclose(2 * noise[0], noise[1], rtol=1e-9, atol=1e-12)


def test_clipping_bounds_what_is_sent(witness):
    found = witness.upload(1, 0, replace(KNOBS, clip=0.1))
    assert np.linalg.norm(found.schemes["no noise"].received) == pytest.approx(0.1)
    assert found.norm > 0.1


def test_what_was_remembered_changes_nothing(run, witness, data):
    """Other knobs in between, then the same ones again, and somebody who asks first."""
    before = witness.upload(4, 0, KNOBS)
    witness.upload(4, 0, replace(KNOBS, clip=0.3))
    fresh = Witness(run.transcript, data)
    fresh.prepare(0)
    for again in (witness.upload(4, 0, KNOBS), fresh.upload(4, 0, KNOBS)):
        for name, scheme in before.schemes.items():
            np.testing.assert_array_equal(again.schemes[name].received, scheme.received)
            for attack, xy in scheme.estimates.items():
                np.testing.assert_array_equal(again.schemes[name].estimates[attack], xy)


def test_attacks_that_need_templates_come_when_they_are_prepared(run, data):
    witness = Witness(run.transcript, data)
    early = witness.upload(0, 0, KNOBS)
    assert early.pending == NEED_TEMPLATES
    assert not set(NEED_TEMPLATES) & early.schemes["aligned"].estimates.keys()
    witness.prepare(0)
    assert witness.upload(0, 0, KNOBS).pending == ()
    assert set(NEED_TEMPLATES) <= witness.upload(0, 0, KNOBS).schemes["aligned"].estimates.keys()


def test_without_measurements_only_what_was_sent_is_seen(run):
    found = Witness(run.transcript).upload(0, 0, KNOBS)
    assert [*found.schemes] == [SENT]
    assert found.position is None
    assert found.error(SENT, "prior only") is None


def test_users_and_rounds_that_are_not_there(run, witness, scene, data):
    assert witness.rounds == [0, ROUNDS - 1]
    assert witness.named("3", 0) == 3
    some = Witness(trained(scene, data, seed=0, keep_users={1}).transcript)
    for parameter, look, arguments in (
        ("user", witness.named, ("99", 0)),
        ("number", witness.upload, (0, 5, KNOBS)),
        ("user", some.upload, (0, 0, KNOBS)),
    ):
        with pytest.raises(ConfigurationError) as caught:
            look(*arguments)
        assert caught.value.parameter == parameter
