"""The attack on uploads that are private by themselves: right, and within what these allow."""

import math

import numpy as np
import pytest

import veilmap as vm
from refusals import refused
from veilmap.attacks import CapLikelihood, PriorOnly
from veilmap.auditing.audit import battery
from veilmap.errors import ConfigurationError

TURNS = vm.Participation(share=1 / 4, in_turns=True)


@pytest.fixture(scope="module")
def town():
    scene = vm.Scene.synthetic(0, size=120.0, buildings=3, base_stations=40)
    return scene, scene.measure(users=120, links_per_user=40, seed=0)


def located(town, **caps):
    """Errors of the attack and of guessing for uploads of which each user sends one."""
    scene, data = town
    run = vm.train(
        data, scene.grid, mechanism=vm.PrivUnit(epsilon=90, delta=1e-4, **caps), rounds=4, seed=0,
        participation=TURNS, recording=vm.Recording(keep_uploads="all"),
    )  # fmt: skip
    truth = dict(zip(data.users.tolist(), data.mean_positions(), strict=True))
    transcript = run.transcript.knowing(*data.stations)
    attacks = CapLikelihood(), PriorOnly()
    return [attack.locate(transcript).errors(truth)["all"] for attack in attacks]


def test_caps_too_small_to_be_private_give_users_away(town):
    found, guessed = located(town, blanket=1e-30, cap=1e-30)
    assert np.median(found) < 10 < np.median(guessed)


def test_noise_alone_tells_nothing(town):
    found, guessed = located(town, blanket=1 - 1e-12, cap=0.5)
    # The relative deviation of guessing's mean square over 120 users is about 6 %.
    ratio = math.sqrt(np.mean(found**2) / np.mean(guessed**2))
    assert ratio > 0.9


def test_other_uploads_are_refused(town):
    scene, data = town
    run = vm.train(data, scene.grid, rounds=1, seed=0, recording=vm.Recording(keep_uploads="all"))
    with refused(ConfigurationError, "PrivUnit", parameter="mechanism"):
        CapLikelihood().locate(run.transcript)
    with refused(ConfigurationError, parameter="alike"):
        CapLikelihood(alike=2)
    names = [attack.name for attack in battery(run.transcript)]
    assert CapLikelihood.name not in names
