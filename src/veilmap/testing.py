"""Checks that every mechanism and every attack must pass, for tests of one's own.

They raise `AssertionError`, and take some seconds the first time. `check_mechanism` says nothing of
privacy: that takes a proof, and an audit.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from veilmap._util.arrays import Floats
from veilmap._util.plain import from_plain, plain, to_plain
from veilmap.attacks import Attack, PriorOnly
from veilmap.attacks.base import Places
from veilmap.errors import ConfigurationError
from veilmap.federation import Broadcast, Recording, SeenRound, Transcript, train
from veilmap.federation.client import Clients, can_add_up
from veilmap.federation.engine import LocalExchange
from veilmap.federation.participation import Participation
from veilmap.federation.server import RoundSum
from veilmap.federation.transcript import ServerSees
from veilmap.geometry.grid import Grid
from veilmap.model.radio_map import RadioMap
from veilmap.privacy import noise
from veilmap.privacy.mechanisms import (
    Answer,
    Contribution,
    GeometryAligned,
    Mechanism,
    NoGuarantee,
    PrivateMechanism,
    UniformNoise,
)
from veilmap.scenes.scene import Scene

__all__ = ["City", "check_attack", "check_mechanism", "city"]

_SEED, _USERS = 7, 40


@dataclass(frozen=True)
class City:
    """A synthetic city, three rounds of its users without noise, and where they are."""

    scene: Scene
    transcript: Transcript
    truth: Places


@cache
def city() -> City:
    """The city that attacks are tried in."""
    scene = Scene.synthetic(0)
    data = scene.measure(users=_USERS, seed=0)
    truth = dict(zip(data.users.tolist(), data.mean_positions(), strict=True))
    run = train(data, scene.grid, rounds=3, seed=0, recording=Recording(keep_uploads="all"))
    return City(scene, run.transcript, truth)


def check_mechanism(mechanism: Mechanism) -> None:
    """Whether clients, servers and run folders can use a mechanism, its noise fixed."""
    kind = plain(type(mechanism))
    assert from_plain(to_plain(mechanism), Mechanism) == mechanism, "it is read back as another one"
    assert mechanism.in_words, "it says nothing of itself"
    if not isinstance(mechanism.guarantee, NoGuarantee):
        assert isinstance(mechanism, PrivateMechanism), "a guarantee needs a PrivateMechanism"
    grid = Grid(3.0, (12, 15), (-5.0, 40.0))
    raw = _gradients(grid)
    users, cells = raw.height_gradient.shape
    together = _answered(mechanism, raw, grid, range(users))
    for name in ("uploads", "theta_gradient", "weights", "norms", "noise_energy"):
        values = np.asarray(getattr(together, name))
        assert len(values) == users, f"{name} has no row for every user"
        assert np.isfinite(values).all(), f"{name} is not finite"
        alone = [getattr(_answered(mechanism, raw, grid, [i]), name)[0] for i in range(users)]
        np.testing.assert_array_equal(alone, values, f"{name} of one user depends on the others")
    assert together.uploads.shape == (users, cells), "uploads are not as long as gradients"
    longest = np.linalg.norm(together.uploads.astype(np.float64), axis=1).max()
    assert longest <= mechanism.largest_upload(cells), "a server would refuse an honest upload"
    spoilt = replace(raw, height_gradient=np.full((users, cells), np.nan))
    _check_refused(lambda: _answered(mechanism, spoilt, grid, range(users)), None)
    if kind.sums_in_place:
        _check_sums(mechanism)


def check_attack(attack: Attack) -> None:
    """Whether an attack finds nobody in noise alone, and takes what it may be given."""
    known = city()
    whole = known.transcript
    for mechanism in (UniformNoise(), GeometryAligned()):
        blind = _without_signal(whole, mechanism)
        if attack.fits(blind):
            guess = _rms(PriorOnly().locate(blind).errors(known.truth)[0])
            # Guessing's RMSE over 40 users has a relative deviation of about 7 %.
            found = attack.locate(blind)
            assert found.attack == attack.name, "estimates bear the attack's name"
            assert set(found.placed[0].clients) == set(known.truth), "every user is placed"
            assert _rms(found.errors(known.truth)[0]) > 0.85 * guess, "it finds users in noise"
    silent = _silent()
    if attack.fits(silent):
        places = attack.locate(silent).placed[0].xy
        assert silent.grid.contains(places).all(), "uploads of zeros are placed on the map"
    _check_refused(lambda: attack.locate(replace(whole, rounds={})), "keep_uploads")
    others: tuple[ServerSees, ...] = ("uploads", "sums")
    for sees in {*others} - attack.sees:
        _check_refused(partial(attack.locate, replace(whole, server_sees=sees)), "server_sees")


def _gradients(grid: Grid) -> Contribution:
    """Longer and shorter than any clip, in one cell, and none at all."""
    rng = np.random.default_rng(3)
    heights = rng.normal(size=(5, grid.cells))
    heights[1] *= 1e-3
    heights[2:4] = 0
    heights[3, 40] = 2.0
    places = rng.uniform([0, 45], [35, 70], (5, 2))
    return Contribution(heights, rng.normal(size=(5, 4)), np.arange(1, 6), places)


def _answered(mechanism: Mechanism, raw: Contribution, grid: Grid, users: Iterable[int]) -> Answer:
    """What some of five users send, each with its own noise."""
    rows = list(users)
    assert raw.user_xy is not None
    own = Contribution(
        raw.height_gradient[rows].copy(), raw.theta_gradient[rows].copy(), raw.counts[rows],
        raw.user_xy[rows],
    )  # fmt: skip
    return mechanism.answer(own, grid, [noise.draw(_SEED, user, 4) for user in rows], 5)


def _check_sums(mechanism: Mechanism) -> None:
    """Users who are added up where they are give the bits of their uploads' sum."""
    scene = Scene.synthetic(3, size=90.0, buildings=3, base_stations=12)
    data = scene.measure(users=23, links_per_user=9, seed=1)
    heights = np.random.default_rng(0).uniform(0, 12, scene.grid.shape)
    broadcast = Broadcast(2, RadioMap(scene.grid, heights), 23)
    if not can_add_up(mechanism, broadcast.radio_map, _SEED):
        return
    apart, in_place = RoundSum(broadcast, np.inf), RoundSum(broadcast, np.inf)
    users = data.users.tolist()
    apart.add(Clients(users, data.links, mechanism, _SEED).answer(broadcast)[0])
    LocalExchange(data, mechanism, _SEED).collect(in_place, Participation().draw(5, 2, users))
    assert in_place.sum.weight == apart.sum.weight, "weights are added up otherwise in place"
    for name in ("height_gradient", "theta_gradient"):
        one, other = getattr(in_place.sum, name), getattr(apart.sum, name)
        np.testing.assert_array_equal(one, other, f"{name} is another one added up in place")


def _without_signal(whole: Transcript, mechanism: Mechanism) -> Transcript:
    """The first round with nothing but noise in it."""
    seen, rng = whole.uploads(0), np.random.default_rng(3)
    uploads = rng.normal(size=seen.uploads.shape).astype(np.float32)
    theta = rng.normal(size=seen.theta_gradient.shape)
    told = replace(seen, uploads=uploads, theta_gradient=theta)
    return replace(whole, rounds={0: told}, mechanism=mechanism)


def _silent() -> Transcript:
    """A round of uploads of zeros."""
    grid, users = Grid(2.0, (10, 20)), 3
    flat = Broadcast(0, RadioMap(grid, np.full(grid.cells, 4.0)))
    zeros = np.zeros((users, grid.cells), dtype=np.float32)
    seen = SeenRound(flat, tuple(range(users)), zeros, np.zeros((users, 4)), np.full(users, 10))
    west, east, south, north = grid.extent
    stations = np.random.default_rng(0).uniform([west, south, 50], [east, north, 50], (10, 3))
    return Transcript(grid, city().transcript.mechanism, stations, {0: seen})


def _check_refused(ask: Callable[[], object], parameter: str | None) -> None:
    try:
        ask()
    except ConfigurationError as error:
        about = error.parameter
    else:
        raise AssertionError(f"it takes what it should refuse ({parameter or 'not finite'})")
    assert about == parameter, f"the error is about {about}, not {parameter}"


def _rms(errors: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))
