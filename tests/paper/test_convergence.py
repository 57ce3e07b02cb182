"""The convergence bounds on problems whose constants are known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilmap.errors import ConfigurationError
from veilmap.paper import theory


class Quadratics:
    """Users with F_i(x) = ½ (x − c_i)ᵀ A_i (x − c_i) and J_i links each."""

    def __init__(self, seed, users=6, size=5):
        rng = np.random.default_rng(seed)
        roots = rng.normal(size=(users, size, size))
        self.curvatures = np.einsum("iab,icb->iac", roots, roots)
        self.centres = 3 * rng.normal(size=(users, size))
        self.counts = rng.integers(1, 30, size=users)
        self.weights = self.counts / self.counts.sum()

    def gradients(self, x):
        return np.einsum("iab,ib->ia", self.curvatures, x - self.centres)

    def loss(self, x):
        apart = x - self.centres
        return 0.5 * self.weights @ np.einsum("ia,iab,ib->i", apart, self.curvatures, apart)

    @property
    def hessian(self):
        return np.einsum("i,iab->ab", self.weights, self.curvatures)

    @property
    def smoothness(self):
        return float(np.linalg.eigvalsh(self.hessian).max())

    def expected_change(self, x, rate, clip, budget):
        """E F after one noisy clipped step − F(x), exactly: noise enters by its covariance."""
        g = self.gradients(x)
        norms = np.linalg.norm(g, axis=1)
        clipped = g * (clip / np.maximum(norms, clip))[:, None]
        after = self.loss(x - rate * self.weights @ clipped)
        energy = budget * np.sum(clipped**2, axis=1)  # all of a user's in one direction
        worst = float(self.weights**2 @ energy) * self.smoothness
        return after + 0.5 * rate**2 * worst - self.loss(x)


@settings(max_examples=80)
@given(
    seed=st.integers(0, 10_000),
    clip=st.floats(0.05, 100),
    budget=st.floats(0, 100),
    share=st.floats(0.01, 0.99),
)
def test_a_step_never_does_worse_than_the_lemma_says(seed, clip, budget, share):
    problem = Quadratics(seed)
    x = np.random.default_rng(seed + 1).normal(size=5) * 4
    g = problem.gradients(x)
    spread = theory.dissimilarity(g, problem.counts)
    even = theory.heterogeneity(problem.counts)
    largest = theory.largest_heights_rate(problem.smoothness, spread, even, budget)
    rate = share * largest
    bound = theory.DescentBound(problem.smoothness, spread, even, budget, clip, rate, 0.1)
    fourth = float(problem.weights @ np.sum(g**2, axis=1) ** 2)
    mean = problem.weights @ g
    allowed = -bound.kappa_h * mean @ mean + theory.clipping_loss(rate, clip, fourth)
    change = problem.expected_change(x, rate, clip, budget)
    assert bound.kappa_h > 0
    assert change <= allowed + 1e-9 * abs(allowed)


def test_the_lemma_is_sharp_where_it_loses_nothing():
    # One user, curvature L in every direction, no clipping: the step changes F by exactly
    # −η‖g‖² + (Lη²/2)(1 + μ)‖g‖²; the lemma gives away the half that clipping might take.
    curvature, budget, rate = 3.0, 4.0, 0.05
    x = np.array([1.0, -2.0])
    g = curvature * x
    exact = -rate * g @ g + 0.5 * curvature * rate**2 * (1 + budget) * g @ g
    bound = theory.DescentBound(curvature, 1.0, 1.0, budget, 1e9, rate, 0.1)
    assert exact == pytest.approx(-(bound.kappa_h + rate / 2) * g @ g)


def test_clipping_can_turn_a_step_uphill_which_the_printed_constant_does_not_allow():
    # F_i linear: L is as small as one likes, so the printed κ_0 = ηB⁴L⁴/8C² vanishes. One
    # user pulls hard one way, two pull gently the other; clipped, the two win.
    gradients, counts = np.array([[10.0], [-2.0], [-2.0]]), np.ones(3)
    clip, rate, smoothness = 1.0, 0.01, 1e-3
    mean = gradients.mean()
    clipped = np.clip(gradients, -clip, clip).mean()
    change = -rate * mean * clipped  # of F, along the slope
    assert change > 0
    spread = theory.dissimilarity(gradients, counts)
    bound = theory.DescentBound(smoothness, spread, 1 / 3, 0, clip, rate, 0.1)
    assert bound.kappa_h > 0
    assert change > -bound.kappa_h * mean**2 + bound.kappa_0
    fourth = float(np.mean(gradients**4))
    assert change <= -bound.kappa_h * mean**2 + theory.clipping_loss(rate, clip, fourth)


def test_rates_and_budgets_answer_each_other():
    constants = (2.0, 3.0, 0.1)
    rate = theory.largest_heights_rate(*constants, noise_budget=7)
    assert rate == pytest.approx(1 / (2 * 9 * 1.7))
    assert theory.largest_noise_budget(*constants, rate) == pytest.approx(7)
    assert theory.largest_noise_budget(*constants, 10.0) < 0  # too fast even without noise


def test_kappa_is_zero_at_the_largest_rate_and_greatest_at_half_of_it():
    constants = (2.0, 3.0, 0.1)
    largest = theory.largest_heights_rate(*constants, noise_budget=7)

    def kappa(share):
        return theory.DescentBound(*constants, 7, 1.0, share * largest, 0.1).kappa_h

    assert kappa(1.0) == pytest.approx(0, abs=1e-12)
    shares = np.linspace(0.01, 1, 100)
    assert shares[np.argmax([kappa(share) for share in shares])] == pytest.approx(0.5)
    assert kappa(0.5) == pytest.approx(largest / 8)


def test_theta_descends_fastest_at_one_over_l_and_not_from_two_over_l_on():
    def kappa(rate):
        return theory.DescentBound(4.0, 1.0, 1.0, 0, 1.0, 0.1, rate).kappa_theta

    assert kappa(0.25) == pytest.approx(1 / 8)
    assert kappa(0.5) == pytest.approx(0)


def test_the_average_gradient_stays_under_the_bound_on_a_noisy_descent():
    problem = Quadratics(3)
    rng = np.random.default_rng(0)
    x, clip, budget, rounds = np.full(5, 4.0), 1e6, 5.0, 400
    even, smooth = theory.heterogeneity(problem.counts), problem.smoothness
    path, spreads, rate = [], [], None
    for _ in range(rounds):
        g = problem.gradients(x)
        spreads.append(theory.dissimilarity(g, problem.counts))
        rate = rate or 0.1 * theory.largest_heights_rate(smooth, 2 * spreads[0], even, budget)
        path.append((problem.loss(x), problem.weights @ g))
        sigma = np.sqrt(budget * np.sum(g**2, axis=1) / 5)
        noise = rng.normal(size=g.shape) * sigma[:, None]
        x = x - rate * problem.weights @ (g + noise)
    bound = theory.DescentBound(smooth, max(spreads), even, budget, clip, rate, 1 / smooth)
    if bound.kappa_h <= 0:
        pytest.fail("the rate left the lemma's range: choose a smaller one")
    mean = np.mean([g @ g for _, g in path])
    assert mean <= (path[0][0] / rounds) / bound.kappa_h
    assert bound.limit() == pytest.approx(np.sqrt(bound.kappa_0 / bound.kappa))
    assert bound.limit(0.0) == 0


def test_dissimilarity_and_heterogeneity_of_known_federations():
    same = np.tile([[1.0, 2.0]], (4, 1))
    assert theory.dissimilarity(same, [1, 1, 1, 1]) == pytest.approx(1)
    apart = np.eye(4)  # nothing in common: B² = N
    assert theory.dissimilarity(apart, [5, 5, 5, 5]) == pytest.approx(2)
    assert theory.dissimilarity([[1.0], [-1.0]], [1, 1]) == np.inf
    assert theory.heterogeneity([3, 3, 3]) == pytest.approx(1 / 3)
    assert theory.heterogeneity([1, 1, 98]) == pytest.approx((1 + 1 + 98**2) / 100**2)


@pytest.mark.parametrize("largest", [5.0, -5.0])
def test_largest_curvature_is_the_largest_eigenvalue_of_either_sign(largest):
    turned = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    hessian = turned @ np.diag([largest, 1.0, 0.5, -2.0, 0.1, 3.0]) @ turned.T
    found = theory.largest_curvature(lambda x: hessian @ x, np.ones(6), iterations=60)
    assert found == pytest.approx(5.0, rel=1e-6)
    assert theory.largest_curvature(lambda x: np.zeros(3), np.ones(3)) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"smoothness": 0.0}, {"dissimilarity": 0.5}, {"heterogeneity": 0.0},
        {"heterogeneity": 1.5}, {"noise_budget": -1.0}, {"clip": 0.0}, {"heights_rate": -1.0},
    ],
)  # fmt: skip
def test_impossible_constants_are_refused(wrong):
    right = {
        "smoothness": 1.0, "dissimilarity": 2.0, "heterogeneity": 0.5, "noise_budget": 1.0,
        "clip": 1.0, "heights_rate": 0.1, "propagation_rate": 0.1,
    }  # fmt: skip
    with pytest.raises(ConfigurationError) as raised:
        theory.DescentBound(**right | wrong)
    assert [raised.value.parameter] == list(wrong)


def test_counts_and_gradients_must_belong_together():
    with pytest.raises(ConfigurationError) as raised:
        theory.dissimilarity(np.ones((3, 2)), [1, 1])
    assert raised.value.parameter == "gradients"
    with pytest.raises(ConfigurationError) as raised:
        theory.heterogeneity([1, 0])
    assert raised.value.parameter == "counts"
