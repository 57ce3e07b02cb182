"""Ways to set measurements aside for testing."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from veilmap._util import checks
from veilmap._util.streams import Purpose, stream
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError


@dataclass(frozen=True)
class Fold:
    """One way to learn from some rows and be judged on others.

    Attributes
    ----------
    scheme : str
        How rows were set aside, such as "blocks of 100 m".
    number : int
    train, test : Measurements
    part : (J,) int
        For every row of ``train`` a group that stays together when validation data are set
        aside from it as the test data were.
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
            raise ConfigurationError(
                f"{self.scheme}: too few groups to set some aside for validation"
            )
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
            raise ConfigurationError(f"there are only {len(fold.train)} links to take {least} from")
        rows = stream(seed, Purpose.FEW_LINKS, fold.number).choice(
            len(fold.train), least, replace=False
        )
        kept = np.sort(rows)
        yield Fold(
            f"{least} links", fold.number, fold.train.select(kept), fold.test, fold.part[kept]
        )


def _folds(
    scheme: str, data: Measurements, groups: NDArray[np.int64], folds: int, seed: int
) -> Iterator[Fold]:
    count = int(groups.max()) + 1
    folds = checks.whole("folds", folds, least=2)
    if count < folds:
        raise ConfigurationError(f"{scheme}: {count} groups cannot be divided into {folds} folds")
    # As many groups in every fold as in the others, to within one.
    fold_of = np.random.default_rng(seed).permutation(np.arange(count) % folds)[groups]
    for number in range(folds):
        learned = fold_of != number
        yield Fold(scheme, number, data.select(learned), data.select(~learned), groups[learned])
