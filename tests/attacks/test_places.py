"""Attacks on users who move: they find homes without noise, and nothing in noise alone."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilmap as vm
from refusals import refused
from veilmap.attacks import FoundPlaces, MatchedFilter, MixturePursuit, PlacesOverTime, PriorOnly
from veilmap.attacks.candidates import Candidates
from veilmap.attacks.found_places import APART, candidates_of, peaks_of
from veilmap.attacks.reidentification import linked
from veilmap.data.whereabouts import Whereabouts
from veilmap.errors import ConfigurationError
from veilmap.federation import InProcess, OnePlacePerRound, SeenRound

ATTACKS = {"over time": PlacesOverTime, "pursuit": MixturePursuit}
USERS = 24


@pytest.fixture(scope="module")
def town():
    scene = vm.Scene.synthetic(0, size=240.0, cell_size=8.0, buildings=8, base_stations=100)
    data = scene.measure_walks(users=USERS, places=8, links_per_place=20, seed=0)
    return scene, data


def run_of(town, engine, rounds, day=0, **settings):
    scene, data = town
    if day:
        data = scene.measure_walks(users=USERS, places=8, links_per_place=20, seed=0, day=day)
    settings = {"recording": vm.Recording(keep_uploads="all")} | settings
    return vm.train(data, scene.grid, rounds=rounds, seed=day, engine=engine, **settings)


@pytest.fixture(scope="module")
def runs(town):
    """All places in every round, and one place a round."""
    return {
        "pursuit": run_of(town, InProcess(), 4),
        "over time": run_of(town, OnePlacePerRound(), 14),
    }


@pytest.fixture(scope="module")
def found(runs):
    return {name: ATTACKS[name]().places(run.transcript) for name, run in runs.items()}


def home_errors(found, data):
    rows = np.searchsorted(data.users, found.clients)
    return np.linalg.norm(found.home - Whereabouts.of(data).most_visited(0)[rows], axis=1)


def share_of_guesses(grid, data, metres=100):
    middle = PriorOnly().guess(grid)
    apart = np.linalg.norm(Whereabouts.of(data).most_visited(0) - middle, axis=1)
    return np.mean(apart <= metres)


def blinded(run, seed):
    """The transcript with nothing but noise in its uploads, and the same number of links."""
    rng = np.random.default_rng(seed)
    rounds = {}
    for number, seen in list(run.transcript.rounds.items())[:6]:
        noise = rng.normal(size=seen.uploads.shape).astype(np.float32)
        rounds[number] = replace(seen, uploads=noise, weight=np.full_like(seen.weight, 20))
    return replace(run.transcript, rounds=rounds)


@pytest.mark.parametrize("name", ATTACKS)
def test_without_noise_most_homes_are_found(name, town, found):
    scene, data = town
    errors = home_errors(found[name], data)
    assert found[name].xy.shape == (USERS, 5, 2)
    assert scene.grid.contains(found[name].xy.reshape(-1, 2)).all()
    guess = share_of_guesses(scene.grid, data, 50)
    # Three deviations of a share of 24 users, at its widest.
    assert np.mean(errors <= 50) > guess + 3 * np.sqrt(0.25 / USERS)


@pytest.mark.parametrize("name", ATTACKS)
def test_as_an_attack_on_one_place_it_answers_with_home(name, runs):
    one = replace(runs[name].transcript, rounds={0: runs[name].transcript.rounds[0]})
    placed = ATTACKS[name]().locate(one).placed["all"]
    np.testing.assert_array_equal(placed.xy, ATTACKS[name]().places(one).home)


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("seed", [0, 1])
def test_nothing_is_found_in_noise_alone(name, seed, town, runs):
    scene, data = town
    found = ATTACKS[name]().places(blinded(runs[name], seed))
    guess = share_of_guesses(scene.grid, data)
    # Three deviations of a share of 24 users; guessing the middle is the best there is.
    assert np.mean(home_errors(found, data) <= 100) < guess + 3 * np.sqrt(guess / USERS)
    middle = PriorOnly().guess(scene.grid)
    guessed = np.linalg.norm(Whereabouts.of(data).most_visited(0) - middle, axis=1)
    # The RMSE over 24 users has a relative deviation of about 8 %.
    errors = home_errors(found, data)
    assert np.sqrt(np.mean(errors**2)) > 0.8 * np.sqrt(np.mean(guessed**2))


def test_sums_over_always_the_same_people_show_no_home(town):
    scene, data = town
    for engine in (InProcess(), OnePlacePerRound()):
        run = run_of(town, engine, 8, server_sees="sums")
        errors = home_errors(PlacesOverTime().places(run.transcript), data)
        guess = share_of_guesses(scene.grid, data)
        assert np.mean(errors <= 100) < guess + 3 * np.sqrt(guess / USERS)


def test_sums_over_changing_people_do(town):
    _, data = town
    run = run_of(
        town, InProcess(), 24, server_sees="sums", participation=vm.Participation(share=0.5)
    )
    errors = home_errors(PlacesOverTime().places(run.transcript), data)
    assert np.median(errors) < 50


@pytest.mark.parametrize("name", ATTACKS)
def test_people_are_recognised_on_another_day_and_not_in_noise(name, town, runs, found):
    engine = InProcess() if name == "pursuit" else OnePlacePerRound()
    later = run_of(town, engine, len(runs[name].transcript.rounds), day=1)
    attack = ATTACKS[name]()
    pairs = linked(found[name], attack.places(later.transcript))
    assert np.mean([one == other for one, other in pairs.items()]) > 0.6
    blind = linked(found[name], attack.places(blinded(later, 7)))
    # Of a random assignment one pair is right on average: more than five have odds of 1 in 1,000.
    assert sum(one == other for one, other in blind.items()) <= 5


@pytest.mark.parametrize("name", ATTACKS)
def test_uploads_of_zeros_break_nothing(name, town, runs):
    scene, _ = town
    one = runs[name].transcript
    seen = one.uploads(0)
    zeros = replace(one, rounds={0: replace(seen, uploads=np.zeros_like(seen.uploads))})
    found = ATTACKS[name]().places(zeros)
    assert np.isfinite(found.xy).all()
    assert scene.grid.contains(found.xy.reshape(-1, 2)).all()


@pytest.mark.parametrize("name", ATTACKS)
def test_what_does_not_suffice_is_refused(name, runs):
    full = runs[name].transcript
    with refused(ConfigurationError, parameter="keep_uploads"):
        ATTACKS[name]().places(replace(full, rounds={}))
    with refused(ConfigurationError, parameter="number"):
        ATTACKS[name](number=1)
    if name == "pursuit":
        with refused(ConfigurationError, parameter="server_sees"):
            MixturePursuit().places(replace(full, server_sees="sums"))


@pytest.mark.parametrize("name", ATTACKS)
def test_some_users_are_attacked_as_all_are(name, runs, found):
    some = ATTACKS[name]().places(replace(runs[name].transcript, targets={3, 17}))
    assert some.clients == (3, 17)
    np.testing.assert_allclose(some.xy, found[name].xy[[3, 17]], atol=1e-3)


# What each one is.


def test_pursuit_takes_a_mixture_of_two_templates_apart(runs):
    transcript = runs["pursuit"].transcript
    candidates = candidates_of(transcript, 1.5)
    broadcast = transcript.rounds[1].broadcast
    (templates,) = candidates.answering(broadcast.radio_map).templates(broadcast.radio_map)
    rows = templates.expected.toarray()
    rng = np.random.default_rng(0)
    strong = np.flatnonzero(np.linalg.norm(rows, axis=1) > np.median(np.linalg.norm(rows, axis=1)))
    pairs = rng.choice(strong, (10, 2))
    pairs = pairs[
        np.linalg.norm(np.diff(candidates.grid.centres[pairs], axis=1)[:, 0], axis=1) > 60
    ]
    norms = np.linalg.norm(rows[pairs], axis=2)
    uploads = (
        0.95 * rows[pairs[:, 0]] / norms[:, :1] + 0.05 * rows[pairs[:, 1]] / norms[:, 1:]
    ).astype(np.float32)
    n = len(pairs)
    assert n > 4
    seen = SeenRound(broadcast, tuple(range(n)), uploads, np.zeros((n, 4)), np.full(n, 40))
    found = MixturePursuit(number=2).places(replace(transcript, rounds={1: seen}))
    np.testing.assert_allclose(found.xy, candidates.grid.centres[pairs])


def test_shares_are_those_of_a_plain_loop(runs):
    transcript = runs["over time"].transcript
    transcript = replace(
        transcript, rounds={n: transcript.rounds[n] for n in range(5)}, targets={2, 9}
    )
    candidates = Candidates.of(transcript, 1.5, 400)
    clients, shares = PlacesOverTime()._shares(transcript, candidates)
    assert clients == (2, 9)
    found = MatchedFilter().locate(transcript, candidates)
    for row, client in enumerate(clients):
        plain = np.full(candidates.grid.cells, 1 / candidates.grid.cells)
        for _ in range(10):
            total = np.zeros_like(plain)
            for number in range(5):
                seen, belief = transcript.uploads(number), found.posteriors[number]
                there = plain * belief.probability[belief.clients.index(client)]
                total += seen.weight[seen.clients.index(client)] * there / there.sum()
            plain = total / total.sum()
        # Templates that are kept sparse lack their faint entries.
        assert np.abs(shares[row] - plain).sum() < 0.05


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_peaks_are_heaps_in_the_order_of_their_weight(seed):
    rng = np.random.default_rng(seed)
    grid = vm.Grid(5.0, (60, 60))
    heaps = np.array([(40, 40), (150, 220), (250, 60)]) + rng.uniform(-20, 20, (3, 2))
    order = rng.permutation(3)
    weights = np.array([0.5, 0.3, 0.15])
    density = np.full(grid.cells, 0.05 / grid.cells)
    for heap, weight in zip(heaps[order], weights, strict=True):
        near = np.exp(-np.sum((grid.centres - heap) ** 2, axis=1) / (2 * 5.0**2))
        density += weight * near / near.sum()
    found = peaks_of(density[None], grid, 3)[0]
    assert np.linalg.norm(found - heaps[order], axis=1).max() < 3.0


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
@settings(max_examples=40)
def test_links_are_the_best_of_all_assignments(seed, people):
    rng = np.random.default_rng(seed)
    first, second = (
        FoundPlaces(tuple(range(start, start + people)), rng.uniform(0, 200, (people, 3, 2)))
        for start in (0, 50)
    )

    def apart(one, other):
        d = np.linalg.norm(one - other)
        return d / (d + APART)

    def cost(i, j):
        (h, w), (g, v) = first.xy[i, :2], second.xy[j, :2]
        return min(apart(h, g) + apart(w, v), apart(h, v) + apart(w, g))

    def total(order):
        return sum(cost(i, j) for i, j in enumerate(order))

    pairs = linked(first, second)
    order = [pairs[i] - 50 for i in range(people)]
    assert total(order) <= min(map(total, permutations(range(people)))) + 1e-12
