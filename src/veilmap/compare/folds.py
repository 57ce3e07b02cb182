"""Ways to set measurements aside for testing."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from veilmap._util import checks
from veilmap._util.streams import Purpose, stream
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError, DataError
from veilmap.geometry.grid import Grid

_CELLS_ALONG = 100  # the wider side of the ground, by default
_BLOCKS_ALONG = 10


@dataclass(frozen=True)
class Fold:
    """One way to learn from some rows and be judged on others.

    ``scheme`` says how rows were set aside, such as "blocks of 100 m"; ``part`` gives every row
    of ``train`` a group that stays together when validation data are set aside from it as the
    test data were.
    """

    scheme: str
    number: int
    train: Measurements = field(repr=False)
    test: Measurements = field(repr=False)
    part: NDArray[np.int64] = field(repr=False)

    def for_validation(
        self, share: float = 0.2, seed: int = 0
    ) -> tuple[Measurements, Measurements, NDArray[np.int64]]:
        """The training rows, once more divided in the same manner, and the latter's groups."""
        groups = np.unique(self.part)
        if len(groups) < 2:
            raise DataError(f"{self.scheme}: too few groups to set some aside for validation")
        count = max(1, round(share * len(groups)))
        aside = np.isin(self.part, np.random.default_rng(seed).choice(groups, count, replace=False))
        return self.train.select(~aside), self.train.select(aside), self.part[aside]


def by_users(data: Measurements, folds: int = 5, *, seed: int = 0) -> Iterator[Fold]:
    """Whole users at random: new people in known places."""
    groups = np.unique(data.user, return_inverse=True)[1].reshape(-1)
    return _folds("random users", data, groups, folds, seed)


def by_blocks(data: Measurements, folds: int = 5, *, block: float, seed: int = 0) -> Iterator[Fold]:
    """Whole squares of ``block`` metres of user ground: places where nobody was."""
    side = checks.number("block", block, above=0)
    squares = np.floor(data.user_xyz[:, :2] / side).astype(np.int64)
    groups = np.unique(squares, axis=0, return_inverse=True)[1].reshape(-1)
    return _folds(f"blocks of {side:g} m", data, groups, folds, seed)


def few_links(data: Measurements, links: int, folds: int = 5, *, seed: int = 0) -> Iterator[Fold]:
    """Random users are tested; of the others only ``links`` rows are learned from."""
    least = checks.whole("links", links, least=10)
    for fold in by_users(data, folds, seed=seed):
        if len(fold.train) < least:
            raise ConfigurationError(
                f"there are only {len(fold.train)} links to take {least} from", "links"
            )
        generator = stream(seed, Purpose.FEW_LINKS, fold.number)
        kept = np.sort(generator.choice(len(fold.train), least, replace=False))
        train, part = fold.train.select(kept), fold.part[kept]
        yield Fold(f"{least} links", fold.number, train, fold.test, part)


@dataclass(frozen=True)
class Splits:
    """A cross-validator: the ways in which test data are set aside, one after the other.

    Parameters
    ----------
    schemes : "users", "blocks" and/or "few"
        See `by_users`, `by_blocks` and `few_links`.
    folds : int
        Of each scheme.
    first : int, optional
        Only so many of the folds.
    block : float, optional
        Side of a block in metres; by default about a tenth of the ground's.
    few : tuple of int
        Links to learn from, a scheme each.
    seed : int
    """

    schemes: tuple[str, ...] = ("users", "blocks", "few")
    folds: int = 5
    first: int | None = None
    block: float | None = None
    few: tuple[int, ...] = (300, 3000)
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = set(self.schemes) - {"users", "blocks", "few"}
        if unknown or not self.schemes:
            named = ", ".join(sorted(unknown))
            message = f"schemes takes users, blocks and few, not {named!r}"
            raise ConfigurationError(message, "schemes")

    def split(self, data: Measurements) -> Iterator[Fold]:
        """The folds of every scheme."""
        for scheme in self.schemes:
            for made in self._made(scheme, data):
                yield from islice(made, self.first)

    def _made(self, scheme: str, data: Measurements) -> list[Iterator[Fold]]:
        """All folds of a scheme; of few links, for each number of them."""
        if scheme == "users":
            return [by_users(data, self.folds, seed=self.seed)]
        if scheme == "few":
            return [few_links(data, links, self.folds, seed=self.seed) for links in self.few]
        block = self.block
        if block is None:
            ground = float(np.ptp(data.user_xyz[:, :2], axis=0).max())
            block = round_number(ground / _BLOCKS_ALONG, "users are")
        return [by_blocks(data, self.folds, block=block, seed=self.seed)]


def _folds(
    scheme: str, data: Measurements, groups: NDArray[np.int64], folds: int, seed: int
) -> Iterator[Fold]:
    count = int(groups.max()) + 1
    folds = checks.whole("folds", folds, least=2)
    if count < folds:
        raise ConfigurationError(
            f"{scheme}: {count} groups cannot be divided into {folds} folds", "folds"
        )
    # As many groups in every fold as in the others, to within one.
    fold_of = np.random.default_rng(seed).permutation(np.arange(count) % folds)[groups]
    for number in range(folds):
        learned = fold_of != number
        yield Fold(scheme, number, data.select(learned), data.select(~learned), groups[learned])


def without_patterns(data: Measurements) -> Measurements:
    """Measurements less their antenna patterns, which are public: alike for every method."""
    if data.antennas is None:
        return data
    patterns = data.antennas.of(data.bs, data.user_xyz, data.bs_xyz)
    return replace(data, gain_db=data.gain_db - patterns, antennas=None)


def covering_grid(data: Measurements, cell_size: float | None = None) -> Grid:
    """A grid over all users and base stations, by default with about 100 cells along a side."""
    ends = np.vstack([data.user_xyz, data.bs_xyz])[:, :2]
    if cell_size is None:
        side = float(np.ptp(ends, axis=0).max())
        cell_size = round_number(side / _CELLS_ALONG, "users and base stations are")
    return Grid.covering(ends, cell_size, crs=data.crs)


def round_number(metres: float, who: str) -> float:
    """The nearest of 1, 2, 3, 5, 10, 20, … metres."""
    if metres <= 0:
        raise DataError(f"all {who} at one place")
    steps = np.array([1, 2, 3, 5, 10])
    power = 10.0 ** np.floor(np.log10(metres))
    return float(power * steps[np.argmin(np.abs(np.log(steps * power / metres)))])
