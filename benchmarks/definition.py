"""The adversary of the definition: knows everything but one user's data, and sees every sum.

python benchmarks/definition.py numbers
python benchmarks/definition.py attack
python benchmarks/definition.py attack --quick
python benchmarks/definition.py timing

`numbers` computes the figures of the proof (docs/proof.md), `timing` how much an answer's time
tells. `attack` trains formal runs of city 1, each with noise of its own. In each, one user (the
victim) either takes part or sends noise alone, which is the neighbouring run. The adversary
subtracts the exact contributions of all others from every opened sum and decides (a) whether the
victim's data are in it, and (b) which of some known candidates they are. It knows the candidates'
data and how the victim rounds: more than anybody has. No noise is to spare: everybody answers, and
the noise is made for that. `attack` takes five minutes on one core, with --quick half a minute.
"""

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import beta, norm, spearmanr

import veilmap as vm
from veilmap.federation import SeenSum
from veilmap.federation.client import Clients
from veilmap.federation.messages import Broadcast
from veilmap.model.propagation import at_100_m
from veilmap.privacy import accounting, noise
from veilmap.privacy.mechanisms.fitting import fitted
from veilmap.privacy.mechanisms.lattice import discrete_gaussian
from veilmap.privacy.mechanisms.sums import Coins
from veilmap.privacy.noise import Draw

CITY, CELL, LINKS = 1, 10.0, 25
ROUNDS, DELTA = 20, 1e-6
CANDIDATES = 50
CONFIDENCE = 0.95
QUICK_TRIALS = 16
SEEDS = 1_000_000

# Thresholds that lower bounds of ε try, in deviations of the noise; chosen before any trial.
THRESHOLDS = (0.0, 1.0, 1.5, 2.0, 2.5)
FALSE_ALARMS = 0.01
TIMES = 40

# What multiplies μ², with n = 18 shares of noise needed where 20 nodes are asked.
FACTORS = {
    "as promised": 1,
    "sum opened at n = 18 answers, 1 of them colludes": 18 / 17,
    "… 5 % of a large cohort collude": 1 / 0.95,
    "… 10 % collude": 1 / 0.9,
    "… 50 % collude": 2,
    "two runs": 2,
    "ten settings tried on the same users": 10,
    "data replaced instead of removed; a pair; a user under two ids": 4,
    "five people who would send the same": 25,
    "roster of the operator's own: one honest share of 18": 18,
}


@dataclass(frozen=True, kw_only=True)
class OneAbsent(vm.AggregateGaussian):
    """The neighbouring run: the user of these draws sends noise alone."""

    absent: frozenset[Draw] = frozenset()

    def coins(self, draws: Sequence[Draw]) -> Coins:
        coins = super().coins(draws)
        present = np.array([draw not in self.absent for draw in draws])
        return Coins(coins.seeds, coins.takes_part & present)


@dataclass(frozen=True)
class Setting:
    """A crowd, and the records of which one is the victim's.

    Attributes
    ----------
    users : int
        N, the victim among them.
    candidates : int
        How many records there are to choose from, each measured at a place of its own.
    """

    users: int
    candidates: int = CANDIDATES
    links: int = LINKS
    cell_size: float = CELL
    rounds: int = ROUNDS

    @cached_property
    def scene(self) -> vm.Scene:
        return vm.Scene.synthetic(CITY, cell_size=self.cell_size)

    @cached_property
    def data(self) -> vm.Measurements:
        """Of the N − 1 others, then of the candidates."""
        users = self.users - 1 + self.candidates
        return self.scene.measure(users, self.links, seed=2 * CITY)

    def with_victim(self, candidate: int) -> vm.Measurements:
        """What a run is trained on."""
        victim = self.users - 1 + candidate
        return self.data.select((self.data.user < self.users - 1) | (self.data.user == victim))

    @cached_property
    def places(self) -> NDArray[np.float64]:
        """Of the candidates, (k, 2)."""
        return self.data.mean_positions()[self.users - 1 :]


@dataclass(frozen=True)
class Trial:
    """What the adversary made of one run.

    Attributes
    ----------
    present : bool
        Whether the victim's data were in the sums.
    score : float
        Likelihood ratio's statistic: standard normal if they were not.
    length : float
        Its mean if they were.
    guess, truth : int
        The candidate whose record fits best, and the victim's.
    """

    present: bool
    score: float
    length: float
    guess: int
    truth: int


def promised(setting: Setting, epsilon: float) -> vm.AggregateGaussian:
    """The mechanism as `train` settles it."""
    asked = vm.AggregateGaussian(epsilon=epsilon, delta=DELTA, dropout=0.0)
    return fitted(accounting.calibrated(asked, setting.rounds), setting.users)


def attacked(
    setting: Setting, claimed: vm.AggregateGaussian, seed: int, present: bool, share: float = 1.0
) -> Trial:
    """Train one run and attack its victim; only ``share`` of the claimed noise is added."""
    truth = int(np.random.default_rng([seed, 1]).integers(setting.candidates))
    victim = setting.users - 1 + truth
    # With less noise than claimed the run would stop early: its own account is switched off.
    settings = {own.name: getattr(claimed, own.name) for own in fields(claimed)} | {
        "noise_multiplier": share * claimed.noise_on_sum, "epsilon": 1e9
    }  # fmt: skip
    draws = frozenset(noise.draw(seed, victim, number) for number in range(setting.rounds))
    run = vm.train(
        setting.with_victim(truth),
        setting.scene.grid,
        rounds=setting.rounds,
        seed=seed,
        mechanism=OneAbsent(**settings, absent=frozenset() if present else draws),
        recording=vm.Recording(keep_uploads="all"),
    )
    links, mechanism = setting.data.links, vm.AggregateGaussian(**settings)
    known = setting.data.users[: setting.users - 1].tolist()
    others = Clients(known, links.users_between(0, len(known)), mechanism, seed)
    records = links.users_between(len(known), links.users)
    suspects = Clients([victim] * setting.candidates, records, mechanism, seed)
    matches, squares = np.zeros((2, setting.candidates))
    for seen in run.transcript.rounds.values():
        assert isinstance(seen, SeenSum)
        theirs = contributions(suspects, seen.broadcast)
        variance = setting.users * _share_deviation(mechanism, seen.broadcast) ** 2
        matches += theirs @ _left_over(seen, others) / variance
        squares += np.einsum("km,km->k", theirs, theirs) / variance
    length = math.sqrt(squares[truth])
    guess = int(np.argmax(matches - squares / 2))  # log-likelihoods, less what all share
    return Trial(present, float(matches[truth] / length), length, guess, truth)


def contributions(clients: Clients, broadcast: Broadcast) -> NDArray[np.float64]:
    """What users add to a sum beside noise, (n, M + P): their answers less their own noise."""
    assert isinstance(clients.mechanism, vm.AggregateGaussian)
    updates, _ = clients.answer(broadcast)
    sampler = discrete_gaussian(_share_deviation(clients.mechanism, broadcast))
    sent = np.array(
        [np.append(update.height_gradient, update.theta_gradient) for update in updates]
    )
    for row, client in enumerate(clients.ids):
        draw = noise.draw(clients.seed, client, broadcast.round)
        sent[row] -= sampler.sample(sent.shape[1], draw)
    return sent.astype(np.float64)


def _left_over(seen: SeenSum, others: Clients) -> NDArray[np.float64]:
    """The opened sum on the lattice without the others: noise, and the victim if it is there."""
    mechanism = others.mechanism
    assert isinstance(mechanism, vm.AggregateGaussian)
    assert mechanism.bits is not None
    # What `AggregateGaussian.read` makes of a sum, undone.
    steps = seen.weight * mechanism.steps / mechanism.clip
    theta = at_100_m(seen.broadcast.radio_map.propagation.laws) @ seen.theta_gradient
    theta *= mechanism.theta_share * mechanism.clip / mechanism.theta_clip
    rest = np.rint(steps * np.append(seen.height_gradient, theta))
    rest -= contributions(others, seen.broadcast).sum(axis=0)
    cells, half = len(seen.height_gradient), 2.0 ** (mechanism.bits - 1)
    rest[:cells] = (rest[:cells] + half) % (2 * half) - half
    return rest


def _share_deviation(mechanism: vm.AggregateGaussian, broadcast: Broadcast) -> float:
    radio_map = broadcast.radio_map
    return mechanism.share_deviation(
        radio_map.trained_cells, len(radio_map.theta), broadcast.cohort
    )


def most_power(false_alarms: float, epsilon: float, delta: float) -> float:
    """What (ε, δ) allows any test: P(alarm | present) for so much P(alarm | absent)."""
    return min(
        math.exp(epsilon) * false_alarms + delta,
        1 - math.exp(-epsilon) * (1 - false_alarms - delta),
    )


def gaussian_power(false_alarms: float, distance: float) -> float:
    """What two normal distributions so many deviations apart allow."""
    return float(norm.cdf(norm.ppf(false_alarms) + distance))


def distance_allowed(mechanism: vm.AggregateGaussian, rounds: int) -> float:
    """μ√T: deviations between the sums with and without a user of the largest contribution."""
    return accounting.guarantee_of(mechanism).distance * math.sqrt(rounds)


def epsilon_of_distance(distance: float, delta: float) -> float:
    """ε of normal distributions so many deviations apart (Balle and Wang, ICML 2018)."""

    def above(epsilon: float) -> float:
        low, high = distance / 2 - epsilon / distance, -distance / 2 - epsilon / distance
        return float(norm.cdf(low) - np.exp(epsilon + norm.logcdf(high))) - delta

    return float(brentq(above, 0.0, 10 * distance * (distance + 5))) if above(0.0) > 0 else 0.0


def least_epsilon(present: NDArray[np.float64], absent: NDArray[np.float64], delta: float) -> float:
    """A lower bound of ε from independent scores, which holds with 95 % whatever the noise is.

    Clopper and Pearson's intervals for the best of all `THRESHOLDS`, above and below (Bonferroni).
    """
    level = (1 - CONFIDENCE) / (4 * len(THRESHOLDS))
    best = 0.0
    for sure, doubted in ((present, absent), (-absent, -present)):
        for threshold in THRESHOLDS:
            hits, false = np.sum(sure > threshold), np.sum(doubted > threshold)
            least = beta.ppf(level, hits, len(sure) - hits + 1) if hits else 0.0
            most = beta.ppf(1 - level, false + 1, len(doubted) - false)
            if least > delta and false < len(doubted):
                best = max(best, math.log((least - delta) / most))
    return best


def summary(
    setting: Setting, claimed: vm.AggregateGaussian, trials: Sequence[Trial]
) -> dict[str, float]:
    """What was measured beside what is allowed."""
    present, absent = (
        np.array([trial.score for trial in trials if trial.present is there])
        for there in (True, False)
    )
    there = [trial for trial in trials if trial.present]
    guesses, truths = np.array([(trial.guess, trial.truth) for trial in there]).T
    off = np.linalg.norm(setting.places[guesses] - setting.places[truths], axis=1)
    middle = np.linalg.norm(setting.places - setting.places.mean(axis=0), axis=1)
    allowed = distance_allowed(claimed, setting.rounds)
    distance = float(present.mean() - absent.mean())
    spread = math.sqrt(1 / len(present) + 1 / len(absent))
    threshold, chance = norm.ppf(1 - FALSE_ALARMS), 1 / setting.candidates
    return {
        "trials": len(trials),
        "AUC": float(np.mean(present[:, None] > absent)),
        "AUC allowed": float(norm.cdf(allowed / math.sqrt(2))),
        "alarms, absent": float(np.mean(absent > threshold)),
        "alarms, present": float(np.mean(present > threshold)),
        "allowed by (ε, δ)": most_power(FALSE_ALARMS, claimed.epsilon, claimed.delta),
        "allowed by ρ": gaussian_power(FALSE_ALARMS, allowed),
        "distance": distance,
        "its deviation": spread,
        "its mean without noise": float(np.mean([trial.length for trial in trials])),
        "its largest without noise": max(trial.length for trial in trials),
        "distance allowed": allowed,
        "ε at least, any noise": least_epsilon(present, absent, claimed.delta),
        "ε at least, normal noise": epsilon_of_distance(
            max(distance - norm.ppf(CONFIDENCE) * spread, 1e-3), claimed.delta
        ),
        "ε claimed": accounting.epsilon(claimed, setting.rounds, claimed.delta),
        "right place": float(np.mean(guesses == truths)),
        "by guessing": chance,
        "place allowed by (ε, δ)": most_power(chance, claimed.epsilon, claimed.delta),
        "place allowed by ρ": gaussian_power(chance, allowed),
        "median error, m": float(np.median(off)),
        "middle of the map, m": float(np.median(middle)),
    }


def attack(quick: bool) -> None:
    """Trials of every setting, and their table."""
    cases = [
        # N, ε, share of the claimed noise, trials
        (200, 8.0, 1.0, 200),
        (200, 2.0, 1.0, 200),
        (1000, 8.0, 1.0, 200),
        (1000, 2.0, 1.0, 200),
        (200, 8.0, 0.5, 80),
        (200, 2.0, 0.1, 120),
    ]
    if quick:
        cases = [(*case[:3], QUICK_TRIALS) for case in cases if case[0] == 200]
    for number, (users, epsilon, share, count) in enumerate(cases):
        setting = Setting(users)
        claimed = promised(setting, epsilon)
        # Seeds of their own: cases that shared noise would err together.
        seeds = range(number * SEEDS, number * SEEDS + count)
        trials = [attacked(setting, claimed, seed, seed % 2 == 0, share) for seed in seeds]
        print(f"\nN = {users}, ε = {epsilon:g}, {share:g} of the claimed noise")
        for name, value in summary(setting, claimed, trials).items():
            print(f"  {name:26s} {value:.3g}")


def numbers() -> None:
    """The figures of the proof for default settings: 100 x 100 cells, 200 rounds."""
    cells, parameters, rounds = 10_000, 4, 200
    print("N, ε: z, μ of a round, levels, bits, Δ, n, σ of a share, uneven, entries, added to δ")
    for users, epsilon in ((200, 8), (1000, 8), (3000, 8), (3000, 2), (100_000, 1)):
        asked = vm.AggregateGaussian(epsilon=epsilon, delta=1e-6)
        made = fitted(accounting.calibrated(asked, rounds), users)
        share = made.share_deviation(cells, parameters, users)
        # What a round's shares lack to one discrete Gaussian, as log₁₀ of ε.
        uneven = math.log10(2 * (cells + parameters) * 4.1) - (math.pi * share) ** 2 / math.log(10)
        entries = len(discrete_gaussian(share)._high)
        distance = 2.0**-128 * entries * (cells + parameters) * users * rounds
        print(
            f"{users}, {epsilon}: {made.noise_on_sum:.2f}, {made.guarantee.distance:.3g},"
            f" {made.levels}, {made.bits}, {made.sensitivity(cells, parameters):.1f},"
            f" {made.least_answers(users)}, {share:.4g}, 1e{uneven:.0f}, {entries},"
            f" {(1 + math.exp(epsilon)) * distance:.1g}"
        )
    made = accounting.calibrated(vm.AggregateGaussian(epsilon=8.0, delta=1e-6), rounds)
    print("\nε = 8 becomes, where μ² is multiplied")
    for reason, factor in FACTORS.items():
        louder = made.with_noise(made.noise_on_sum / math.sqrt(factor))
        print(f"{reason}: × {factor:.4g}, ε = {accounting.epsilon(louder, rounds, 1e-6):.1f}")


def timing() -> None:
    """How well the time of an answer tells how many cells a user's links cross."""
    setting = Setting(2, cell_size=3.0, links=200)
    start = vm.NoiseAwareStep().start(setting.scene.grid).radio_map
    broadcast = Broadcast(0, start, 100)
    mechanism = fitted(accounting.calibrated(vm.AggregateGaussian(), 200), 100)
    seconds, crossed = [], []
    for user in range(1, setting.candidates + 1):
        client = Clients([user], setting.data.links.users_between(user, user + 1), mechanism)
        taken = []
        for _ in range(TIMES):
            started = time.perf_counter()
            client.answer(broadcast)
            taken.append(time.perf_counter() - started)
        seconds.append(min(taken))
        crossed.append(
            np.count_nonzero(vm.local_gradients(start, setting.data).height_gradient[user])
        )
    print(f"{min(seconds) * 1e3:.2f} to {max(seconds) * 1e3:.2f} ms;", end=" ")
    print(f"rank correlation with cells crossed {spearmanr(seconds, crossed).statistic:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("numbers", "attack", "timing"))
    parser.add_argument("--quick", action="store_true", help="few trials, and of 200 users only")
    given = parser.parse_args()
    if given.what == "attack":
        attack(given.quick)
    else:
        {"numbers": numbers, "timing": timing}[given.what]()


if __name__ == "__main__":
    main()
