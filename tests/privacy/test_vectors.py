"""Mechanisms on vectors of any model, whose entries have no positions."""

import numpy as np
import pytest

import veilmap as vm
from refusals import refused
from veilmap.errors import ConfigurationError
from veilmap.privacy import noise
from veilmap.privacy.mechanisms import Contribution

GRID = vm.Grid(2.0, (5, 8))
GRADIENTS = np.random.default_rng(0).normal(size=(6, 40)) * np.arange(1, 7)[:, None] / 10
PLACES = np.full((6, 2), 3.0)


def draws():
    return [noise.draw(0, user, 0) for user in range(6)]


@pytest.mark.parametrize("mechanism", [vm.NoNoise(), vm.UniformNoise(noise_budget=3.0)])
def test_without_positions_a_mechanism_does_what_it_does_with_them(mechanism):
    with_grid = mechanism.protect(GRADIENTS, GRID, PLACES, draws())
    without = mechanism.protect(GRADIENTS, None, None, draws())
    for field in ("uploads", "norms", "noise_energy"):
        np.testing.assert_array_equal(getattr(without, field), getattr(with_grid, field))
    sent = mechanism.answer(Contribution.of_vectors(GRADIENTS), None, draws(), 6)
    np.testing.assert_array_equal(sent.uploads, without.uploads)


def test_a_vector_of_any_length_is_clipped():
    own = np.array([[3.0, 4.0, 0.0], [0.1, 0.0, 0.0]])
    sent = vm.NoNoise(clip=1.0).protect(own, None, None, draws()[:2]).uploads
    np.testing.assert_allclose(sent, [[0.6, 0.8, 0.0], [0.1, 0.0, 0.0]])


def test_a_formal_sum_of_vectors_is_their_clipped_sum():
    quiet = vm.AggregateGaussian(clip=1.0, theta_share=0.0, noise_multiplier=0.5, levels=16_384)
    raw = Contribution.of_vectors(GRADIENTS)
    sent = quiet.answer(raw, None, draws(), 6)
    found = quiet.read(sent.uploads.sum(axis=0).astype(float), np.empty(0), 6, laws=0)[0]
    clipped = GRADIENTS * np.minimum(1, 1 / np.linalg.norm(GRADIENTS, axis=1))[:, None]
    # Noise of deviation 0.5/√0.9 on the sum; five deviations of the largest of 40.
    assert np.abs(6 * found - clipped.sum(axis=0)).max() < 5 * 0.5 / np.sqrt(0.9) * 1.05
    assert quiet.sensitivity(40, 0) < quiet.steps * 1.04


def test_noise_that_follows_geometry_needs_it():
    with refused(ConfigurationError, "GeometryAligned", parameter="grid"):
        vm.GeometryAligned().protect(GRADIENTS, None, None, draws())
    with refused(ConfigurationError, parameter="user_xy"):
        vm.GeometryAligned().protect(GRADIENTS, GRID, None, draws())


def test_entries_that_are_not_finite_are_refused():
    broken = GRADIENTS.copy()
    broken[2, 3] = np.nan
    with refused(ConfigurationError):
        vm.UniformNoise().protect(broken, None, None, draws())
