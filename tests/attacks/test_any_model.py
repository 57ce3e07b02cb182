"""Attacks on gradients of any model: exact without noise, blind on noise, equal to ours on ours."""

import math

import numpy as np
import pytest

import networks
import veilmap as vm
from refusals import refused
from veilmap.attacks import MatchedFilter, PriorOnly
from veilmap.attacks.any_model import (
    DeepLeakage,
    FirstLayer,
    Guess,
    Inversion,
    Places,
    SeenGradients,
    TemplateFilter,
)
from veilmap.errors import ConfigurationError
from veilmap.model.gradient_models import FunctionModel, LinearModel, RadioMapModel
from veilmap.model.gradient_models.base import flat, gradient_of

ATTACKS = {
    "templates": TemplateFilter(),
    "cosine": Inversion("cosine"),
    "L2": Inversion("L2"),
    "first layer": FirstLayer(),
    "deep leakage": DeepLeakage(),
}
MODEL = networks.network()


def places(model=MODEL, grid=networks.AREA):
    def around(xy):
        return vm.Records(np.reshape(xy, (1, 2)), [0.0])

    return Places(model, flat(model.parameters), grid, around, 3.0)


def seen(people, model=MODEL, clip=math.inf):
    vector = flat(model.parameters)
    own = np.array([gradient_of(model, vector, records) for records in people.values()])
    own *= np.minimum(1, clip / np.linalg.norm(own, axis=1))[:, None]
    return SeenGradients(vector, tuple((user,) for user in people), own, clip)


def truth(people):
    return {user: records.xy.mean(axis=0) for user, records in people.items()}


def errors(attack, people, **options):
    return attack.locate(seen(people, **options), places()).errors(truth(people))["all"]


# Without noise.


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "templates"])
@pytest.mark.parametrize("clip", [math.inf, 0.1])
def test_one_record_without_noise_is_found_exactly(name, clip):
    found = errors(ATTACKS[name], networks.users(12), clip=clip)
    # Descents of a fixed number of steps end near the place, climbs at it.
    assert np.median(found) < (3.0 if name == "deep leakage" else 0.05)
    # Some climbs end on a wrong hill.
    assert np.mean(found < 5.0) >= 0.75


def test_templates_find_the_cell():
    people = networks.users(12)
    found = errors(ATTACKS["templates"], people)
    # A cell's centre is at most half a diagonal away; the best match may be a neighbour's.
    assert np.median(found) < networks.AREA.cell_size * math.sqrt(0.5)


def test_the_ratio_of_the_first_layer_is_every_record_to_the_millimetre():
    assert errors(FirstLayer(), networks.users(20)).max() < 1e-3


def test_a_linear_estimator_gives_its_record_away():
    sklearn = pytest.importorskip("sklearn.linear_model", reason="an optional extra")
    people = networks.users(10)
    rows = np.vstack([own.columns for own in people.values()])
    fitted = sklearn.LinearRegression().fit(
        rows, np.concatenate([own.target for own in people.values()])
    )
    model = LinearModel(fitted)
    found = FirstLayer().locate(seen(people, model), places(model)).errors(truth(people))["all"]
    # Single values of inputs in metres beside a bias of 1 are exact to 1e-8 of 300² m.
    assert found.max() < 0.01


@pytest.mark.parametrize("name", ["cosine", "first layer", "deep leakage"])
def test_of_a_batch_nearly_its_average_place_is_found(name):
    people = networks.users(15, records=8, spread=3.0)
    # The mean is weighted by the slopes: it is among the records or not far from them.
    assert np.median(errors(ATTACKS[name], people)) < 15


def test_first_layers_of_few_inputs_or_other_names_are_no_surprise():
    without = FunctionModel(MODEL.parameters, MODEL.loss_gradient)
    assert not FirstLayer().applies(places(without))
    wrong = FunctionModel(MODEL.parameters, MODEL.loss_gradient, ("w1", "bias"), networks.scaled)
    with refused(ConfigurationError, "'bias'", parameter="first_layer"):
        FirstLayer().locate(seen(networks.users(2)), places(wrong))
    wide = FunctionModel(
        MODEL.parameters, MODEL.loss_gradient, ("w1", "b1"),
        lambda own: np.hstack([networks.scaled(own), np.ones((len(own), 1))]),
    )  # fmt: skip
    with refused(ConfigurationError, "inputs", parameter="first_layer"):
        FirstLayer().locate(seen(networks.users(2)), places(wide))


def test_inputs_that_say_nothing_about_the_place_are_left_aside():
    """The time of day is an input too, and nobody knows when a user measured."""

    def inputs(records):
        return np.hstack([networks.scaled(records), records.features])

    parameters = MODEL.parameters | {"w1": np.random.default_rng(0).normal(size=(12, 3))}

    def gradient(given, records):
        z = inputs(records)
        hidden = np.tanh(z @ given["w1"].T + given["b1"])
        off = 2 * (hidden @ given["w2"][0] - records.target)
        delta = off[:, None] * given["w2"][0] * (1 - hidden**2)
        return {"w1": delta.T @ z, "b1": delta.sum(0), "w2": off[None] @ hidden, "b2": off}

    model = FunctionModel(parameters, gradient, ("w1", "b1"), inputs)
    people = {
        user: vm.Records(own.xy, own.target, [[user / 10]])
        for user, own in networks.users(8).items()
    }
    public = Places(
        model, flat(parameters), networks.AREA,
        lambda xy: vm.Records(np.reshape(xy, (1, 2)), [0.0], [[0.5]]), 3.0,
    )  # fmt: skip
    found = FirstLayer().locate(seen(people, model), public).errors(truth(people))["all"]
    assert found.max() < 1e-3


# With nothing but noise.


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_noise_alone_tells_nothing(name, seed):
    people = networks.users(40, seed=seed)
    blind = seen(people)
    noise = np.random.default_rng(seed).normal(size=blind.uploads.shape)
    blind = SeenGradients(blind.parameters, blind.clients, noise)
    guess, found = (
        attack.locate(blind, places()).errors(truth(people))["all"]
        for attack in (Guess(), ATTACKS[name])
    )
    # Guessing's RMSE over 40 users has a relative deviation of about 7 %.
    assert np.sqrt(np.mean(found**2)) > 0.85 * np.sqrt(np.mean(guess**2))
    if name in ("cosine", "L2", "first layer"):  # these know when they know nothing
        assert np.sqrt(np.mean(found**2)) < 1.25 * np.sqrt(np.mean(guess**2))


@pytest.mark.parametrize("name", ["cosine", "L2", "first layer"])
def test_beliefs_about_noise_cover_the_truth_as_often_as_they_say(name):
    people = networks.users(40, seed=3)
    rng = np.random.default_rng(3)
    noisy = seen(people)
    lengths = np.linalg.norm(noisy.uploads, axis=1, keepdims=True)
    noise = rng.normal(size=noisy.uploads.shape) / np.sqrt(noisy.uploads.shape[1])
    noisy = SeenGradients(noisy.parameters, noisy.clients, noisy.uploads + 2 * lengths * noise)
    beliefs = ATTACKS[name].locate(noisy, places()).posteriors["all"]
    # 95 % if calibrated; the noise's variance and targets are fitted, so that it is rather less.
    assert beliefs.covers(truth(people)).mean() > 0.75
    assert np.median(beliefs.entropy()) > 2.0


@pytest.mark.parametrize("name", ATTACKS)
def test_vectors_of_zeros_break_nothing(name):
    zeros = seen(networks.users(3))
    zeros = SeenGradients(zeros.parameters, zeros.clients, 0 * zeros.uploads)
    found = ATTACKS[name].locate(zeros, places()).placed["all"].xy
    assert networks.AREA.contains(found).all()


def test_all_users_of_a_sum_are_at_its_place():
    people = networks.users(6)
    own = seen(people)
    halves = own.uploads.reshape(2, 3, -1).mean(axis=1)
    of_sums = SeenGradients(own.parameters, ((0, 1, 2), (3, 4, 5)), halves, sums=True)
    for attack in (*ATTACKS.values(), Guess()):
        placed = attack.locate(of_sums, places()).placed["all"]
        assert placed.clients == tuple(range(6))
        np.testing.assert_array_equal(placed.xy[[0, 3]], placed.xy[[2, 5]])


# On our own model.


@pytest.mark.parametrize("mechanism", [vm.NoNoise(), vm.GeometryAligned(noise_budget=20)])
def test_on_a_wrapped_radio_map_the_filter_is_ours(mechanism):
    scene = vm.Scene.synthetic(5, size=90.0, buildings=4, base_stations=25)
    data = scene.measure(users=12, links_per_user=20, seed=0)
    run = vm.train(
        data, scene.grid, mechanism=mechanism, rounds=6, seed=0,
        recording=vm.Recording(keep_uploads={0, 5}),
    )  # fmt: skip
    transcript = run.transcript
    ours = MatchedFilter().locate(transcript)
    around = RadioMapModel.around(transcript.best_map, transcript.base_stations)
    for number in (0, 5):
        kept = transcript.uploads(number)
        model = RadioMapModel(kept.broadcast.radio_map)
        vector = flat(model.parameters)
        clients = tuple((client,) for client in kept.clients)
        wrapped = SeenGradients(vector, clients, kept.uploads.astype(np.float64), mechanism.clip)
        public = Places(model, vector, transcript.grid, around, 1.0)
        found = TemplateFilter().locate(wrapped, public)
        same, theirs = ours.posteriors[number], found.posteriors["all"]
        assert theirs.clients == same.clients
        # Templates are in single precision; those whose two gradients nearly point the same way
        # lose a thousandth of their length by it.
        np.testing.assert_allclose(theirs.evidence, same.evidence, rtol=5e-3, atol=1e-2)
        np.testing.assert_array_equal(found.placed["all"].xy, ours.placed[number].xy)
    guessed = Guess().locate(wrapped, public).placed["all"].xy
    np.testing.assert_array_equal(guessed, PriorOnly().locate(transcript).placed["all"].xy)


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: Inversion("L1"), "match"),
        (lambda: DeepLeakage(starts=0), "starts"),
        (lambda: TemplateFilter(ways_to_differ=0), "ways_to_differ"),
    ],
)
def test_wrong_parameters_are_refused(make, parameter):
    with refused(ConfigurationError, parameter=parameter):
        make()
