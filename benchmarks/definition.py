"""The adversary of the definition: knows everything but one user's data, and sees every sum.

python benchmarks/definition.py numbers
python benchmarks/definition.py attack
python benchmarks/definition.py attack --quick
python benchmarks/definition.py audit
python benchmarks/definition.py places
python benchmarks/definition.py canaries
python benchmarks/definition.py active
python benchmarks/definition.py surveys
python benchmarks/definition.py timing

`numbers` computes the figures of the proof (docs/proof.md), `timing` how much an answer's time
tells. `attack` trains formal runs of city 1, each with noise of its own. In each, one user (the
victim) either takes part or sends noise alone, which is the neighbouring run. The adversary
subtracts the exact contributions of all others from every opened sum and decides (a) whether the
victim's data are in it, and (b) which of some known candidates they are. It knows the candidates'
data and how the victim rounds: more than anybody has. No noise is to spare: everybody answers, and
the noise is made for that. `attack` takes five minutes on one core, with --quick half a minute.

The others set measured power beside what is allowed: `audit` trains for `vm.audit`, whose
adversary knows everybody else, and `places` says where it places users; `canaries` bounds ε from
below, as claimed and with half of the noise; `active` sends a map in which one user's links alone
have gradients; `surveys` compares two surveys of the same people.
"""

import argparse
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm, spearmanr

import veilmap as vm
from veilmap.auditing.canaries import canary_bound_of_rounds
from veilmap.auditing.measured import Measured, Z
from veilmap.auditing.membership import Membership, auc_allowed, found_allowed
from veilmap.auditing.surveys import audit_two
from veilmap.federation import SeenSum
from veilmap.federation.client import Clients
from veilmap.federation.messages import Broadcast
from veilmap.privacy import accounting, noise
from veilmap.privacy.mechanisms.fitting import fitted
from veilmap.privacy.mechanisms.lattice import discrete_gaussian
from veilmap.privacy.mechanisms.sums import Coins
from veilmap.privacy.noise import Draw
from veilmap.surveys.design import stations_of

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
TRAININGS = 5
ACTIVE_TRIALS = 300
NEAR = 30.0  # metres
SHARPEST = 10.0  # per metre, that `Broadcast.check` lets pass

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
        theirs = suspects.contributions(seen.broadcast).astype(np.float64)
        variance = setting.users * _share_deviation(mechanism, seen.broadcast) ** 2
        matches += theirs @ _left_over(seen, others) / variance
        squares += np.einsum("km,km->k", theirs, theirs) / variance
    length = math.sqrt(squares[truth])
    guess = int(np.argmax(matches - squares / 2))  # log-likelihoods, less what all share
    return Trial(present, float(matches[truth] / length), length, guess, truth)


def _left_over(seen: SeenSum, others: Clients) -> NDArray[np.float64]:
    """The opened sum on the lattice without the others: noise, and the victim if it is there."""
    mechanism, radio_map = others.mechanism, seen.broadcast.radio_map
    assert isinstance(mechanism, vm.AggregateGaussian)
    laws = radio_map.propagation.laws
    rest = mechanism.opened(seen.height_gradient, seen.theta_gradient, seen.weight, laws)
    rest -= others.contributions(seen.broadcast).sum(axis=0)
    cells = radio_map.trained_cells
    rest[:cells] = mechanism.centred(rest[:cells])
    return rest


def _share_deviation(mechanism: vm.AggregateGaussian, broadcast: Broadcast) -> float:
    radio_map = broadcast.radio_map
    return mechanism.share_deviation(
        radio_map.trained_cells, len(radio_map.theta), broadcast.cohort
    )


def gaussian_power(false_alarms: float, distance: float) -> float:
    """What two normal distributions so many deviations apart allow."""
    return float(norm.cdf(norm.ppf(false_alarms) + distance))


def distance_allowed(mechanism: vm.AggregateGaussian, rounds: int) -> float:
    """μ√T: deviations between the sums with and without a user of the largest contribution."""
    return accounting.guarantee_of(mechanism).distance * math.sqrt(rounds)


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
        "allowed by (ε, δ)": found_allowed(FALSE_ALARMS, claimed.epsilon, claimed.delta),
        "allowed by ρ": gaussian_power(FALSE_ALARMS, allowed),
        "distance": distance,
        "its deviation": spread,
        "its mean without noise": float(np.mean([trial.length for trial in trials])),
        "its largest without noise": max(trial.length for trial in trials),
        "distance allowed": allowed,
        "ε at least, any noise": least_epsilon(present, absent, claimed.delta),
        "ε at least, normal noise": accounting.epsilon_of_distance(
            max(distance - norm.ppf(CONFIDENCE) * spread, 1e-3), claimed.delta
        ),
        "ε claimed": accounting.epsilon(claimed, setting.rounds, claimed.delta),
        "right place": float(np.mean(guesses == truths)),
        "by guessing": chance,
        "place allowed by (ε, δ)": found_allowed(chance, claimed.epsilon, claimed.delta),
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


def audit() -> None:
    """Power of who knows everybody else, over some trainings of each setting."""
    for users, epsilon in ((200, 8.0), (200, 2.0), (1000, 8.0), (1000, 2.0), (3000, 8.0)):
        setting, told = Setting(users, candidates=1), []
        for seed in range(TRAININGS):
            run = vm.train(
                setting.data,
                setting.scene.grid,
                rounds=setting.rounds,
                seed=seed,
                mechanism=vm.AggregateGaussian(epsilon=epsilon, delta=DELTA, dropout=0.0),
                recording=vm.Recording(keep_uploads="all"),
            )
            sums = vm.audit(run, setting.data, users=users).sums
            assert sums is not None
            told.append(sums)
        ratio = np.mean([sums.closest_rmse for sums in told])
        lengths = max(sums.distance_largest for sums in told), told[0].distance_allowed
        print(
            f"\nN = {users}, ε = {epsilon:g}: distance {lengths[0]:.3f} of {lengths[1]:.3f}", end=""
        )
        print(f", RMSE / guessing's {ratio:.3f}")
        print_power([sums.membership for sums in told])


def places() -> None:
    """Where `Differencing` and somebody who knows everybody else place users of city 0."""
    scene = vm.Scene.synthetic(0)
    for users, epsilon, missing in ((1000, 8.0, 0.0), (1000, 8.0, 0.05), (3000, 8.0, 0.0)):
        data = scene.measure(users, 200, seed=0)
        run = vm.train(
            data,
            scene.grid,
            rounds=60,
            seed=0,
            mechanism=vm.AggregateGaussian(epsilon=epsilon, delta=DELTA),
            participation=vm.Participation(dropout=missing),
            recording=vm.Recording(keep_uploads="all"),
        )
        found = vm.audit(run, data, users=300)
        assert found.sums is not None
        print(f"N = {users}, ε = {epsilon:g}, {missing:g} missing: RMSE / guessing's", end=" ")
        print(f"{found.sums.closest_rmse:.3f}, of differencing {found.closest_rmse:.3f};", end=" ")
        print(f"AUC {found.sums.membership.auc}")


def print_power(told: Sequence[Membership]) -> None:
    """Means over trainings with noise of their own, beside what is allowed."""
    first = told[0]
    for name, each, allowed, of_noise in (
        ("AUC", [one.auc for one in told], first.auc_allowed, first.auc_of_noise),
        (
            "found at 5 %",
            [one.found_at_5_percent for one in told],
            first.found_at_5_percent_allowed,
            first.found_at_5_percent_of_noise,
        ),
    ):
        value, error = np.mean([one.value for one in each]), _error(each)
        print(f"  {name:13s} {value:.4f} ± {error:.4f} (standard error);", end=" ")
        print(f"(ε, δ) allows {allowed:.4f}, {(allowed - value) / error:.1f} errors more;", end=" ")
        print(f"the noise {of_noise:.4f}")


def _error(measured: Sequence[Measured]) -> float:
    """Of the mean of independent figures, from their intervals."""
    each = [(one.high - one.low) / (2 * Z) for one in measured]
    return float(np.linalg.norm(each)) / len(each)


def canaries() -> None:
    """Lower bounds of ε for rounds, as claimed and with half of the noise."""
    users, rounds, grid = 1000, 60, vm.Grid(3.0, (100, 100))
    for epsilon in (8.0, 2.0):
        asked = vm.AggregateGaussian(epsilon=epsilon, delta=DELTA)
        claimed = fitted(accounting.calibrated(asked, rounds), users)
        for share in (1.0, 0.5):
            started = time.perf_counter()
            noisy = claimed.with_noise(share * claimed.noise_on_sum)
            bound = canary_bound_of_rounds(noisy, grid, users, rounds, seed=0)
            print(f"ε = {epsilon:g}, {share:g} of its noise: {bound.canaries} canaries,", end=" ")
            print(f"{bound.right} of {bound.guesses} guesses right,", end=" ")
            print(f"ε at least {bound.epsilon_at_least:.2f};", end=" ")
            print(f"whatever the noise {bound.epsilon_at_least_of_any:.2f}", end=" ")
            print(f"({time.perf_counter() - started:.0f} s)", flush=True)


def loneliest(setting: Setting) -> int:
    """The user furthest from all others, whom a map can be made for best."""
    xy = setting.data.mean_positions()[: setting.users]
    apart = np.linalg.norm(xy[:, None] - xy, axis=2) + 1e9 * np.eye(len(xy))
    return int(apart.min(axis=1).argmax())


def active_map(setting: Setting, claimed: vm.AggregateGaussian, victim: int) -> vm.RadioMap:
    """A map that `Broadcast.check` lets pass, in which hardly anybody has a gradient but one.

    All is far below ground, where links are clear and nothing moves them, but for one cell: of
    those near the victim, and of some heights, the one that moves the victim and fewest others.
    Laws are so wrong that any gradient exceeds the clip.
    """
    grid, links = setting.scene.grid, setting.data.links.users_between(0, setting.users)
    start = vm.NoiseAwareStep().start(grid).radio_map
    everybody = Clients(setting.data.users[: setting.users].tolist(), links, claimed, 0)
    apart = np.linalg.norm(grid.centres - links.mean_positions()[victim], axis=1)
    found = []
    for cell in np.flatnonzero(apart < NEAR):
        for height, gain in itertools.product((1.5, 2.0, 3.0), (0.0, 500.0)):
            heights = np.where(np.arange(grid.cells) == cell, height, -50.0)
            wrong = replace(start.propagation, los_intercept=gain)
            made = replace(start, heights=heights, propagation=wrong, sharpness=SHARPEST)
            added = everybody.contributions(Broadcast(0, made, setting.users))[:, : grid.cells]
            lengths = np.linalg.norm(added, axis=1)
            found.append((lengths[victim], lengths.sum() / max(lengths[victim], 1e-30), made))
    enough = 0.9 * max(length for length, _, _ in found)
    return min((one for one in found if one[0] >= enough), key=lambda one: one[1])[2]


@dataclass(frozen=True)
class Active:
    """What a server sees that sends one map in all rounds and looks for one user, in sums of h.

    Attributes
    ----------
    distance : float
        By how many deviations of the noise the victim moves all sums together.
    others : float
        What all others add, added up, over what the victim does: where that is little, it need not
        be known.
    scores : (trials,) array
        Of somebody who does not; trials with even numbers have the victim in.
    """

    distance: float
    others: float
    scores: NDArray[np.float64]


def seen_with(
    radio_map: vm.RadioMap,
    setting: Setting,
    claimed: vm.AggregateGaussian,
    victim: int,
    trials: int,
) -> Active:
    """Let users answer the map round after round, and the victim in every other trial."""
    first = Broadcast(0, radio_map, setting.users)
    first.check()
    ids, cells = setting.data.users[: setting.users].tolist(), radio_map.trained_cells
    everybody = Clients(ids, setting.data.links.users_between(0, len(ids)), claimed, 0)
    added = everybody.contributions(first)[:, :cells].astype(np.float64)
    length = float(np.linalg.norm(added[victim]))
    along = added[victim] / length
    on_sum = math.sqrt(setting.users * setting.rounds) * _share_deviation(claimed, first)
    scores, seed = np.zeros(trials), int(SEEDS * claimed.epsilon)  # of its own, as in `attack`
    for trial in range(trials):
        draws = [noise.draw(seed + trial, ids[victim], number) for number in range(setting.rounds)]
        kept = OneAbsent(
            **{own.name: getattr(claimed, own.name) for own in fields(claimed)},
            absent=frozenset(draws if trial % 2 else ()),
        )
        crowd = replace(everybody, mechanism=kept, seed=seed + trial)
        for number in range(setting.rounds):
            updates, _ = crowd.answer(replace(first, round=number))
            scores[trial] += sum(update.height_gradient @ along for update in updates)
    others = float(np.linalg.norm(added, axis=1).sum()) / length - 1
    return Active(length * setting.rounds / on_sum, others, scores / on_sum)


def active() -> None:
    """Power over a user whose links alone have gradients, of somebody who knows nobody."""
    for epsilon in (8.0, 2.0):
        setting = Setting(200, candidates=1)
        claimed = promised(setting, epsilon)
        allowed = distance_allowed(claimed, setting.rounds)
        start, victim = vm.NoiseAwareStep().start(setting.scene.grid).radio_map, loneliest(setting)
        print(f"N = {setting.users}, ε = {epsilon:g}: {allowed:.3f} deviations allowed")
        for name, sent, trials in (
            ("the first map", start, 2),
            ("the active map", active_map(setting, claimed, victim), ACTIVE_TRIALS),
        ):
            found = seen_with(sent, setting, claimed, victim, trials)
            print(
                f"  {name}: {found.distance:.3f}; all others add {found.others:.3g} times as much"
            )
        there, away = found.scores[::2], found.scores[1::2]
        print(f"  AUC {np.mean(there[:, None] > away):.3f} in {len(found.scores)} trials;", end=" ")
        print(f"the noise allows {norm.cdf(allowed / math.sqrt(2)):.3f},", end=" ")
        print(f"(ε, δ) {auc_allowed(epsilon, DELTA):.4f}")


def surveys() -> None:
    """What two surveys of the same people tell, one of them without somebody or both with."""
    setting = Setting(1000, candidates=1)
    west, east, south, north = setting.scene.grid.extent
    data, area = setting.data, (west, south, east, north)
    for epsilon in (2.0, 8.0):
        places, ids = data.stations
        design = vm.Survey.design(
            area, stations_of(places, ids), participants=setting.users, epsilon=epsilon, delta=DELTA
        )
        for name, seeds in (("missing in the second", 0), ("in both", 1)):
            pairs = [
                audit_two(
                    vm.survey(data, design, seed=2 * seed).opened,
                    vm.survey(data, replace(design, id="again"), seed=2 * seed + 1).opened,
                    data,
                )
                for seed in range(TRAININGS)
            ]
            print(f"\nN = {setting.users}, ε = {epsilon:g} each: {name}")
            print_power([pair[seeds] for pair in pairs])


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


OTHERS = {
    "numbers": numbers,
    "audit": audit,
    "places": places,
    "canaries": canaries,
    "active": active,
    "surveys": surveys,
    "timing": timing,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("attack", *OTHERS))
    parser.add_argument("--quick", action="store_true", help="few trials, and of 200 users only")
    given = parser.parse_args()
    if given.what == "attack":
        attack(given.quick)
    else:
        OTHERS[given.what]()


if __name__ == "__main__":
    main()
