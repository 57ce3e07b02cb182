"""Ways to set measurements aside: who is tested, who is learned from."""

import numpy as np
import pytest

import veilmap as vm
from veilmap.compare import Fold, by_blocks, by_users, few_links
from veilmap.errors import ConfigurationError, DataError

BLOCK = 50.0


def walkers(users=23, seed=0):
    """Users with 1 to 12 links each, in no order; every gain tells its row."""
    rng = np.random.default_rng(seed)
    user = rng.permutation(np.repeat(np.arange(users) * 7, rng.integers(1, 13, users)))
    ends = rng.uniform([-120, 0, 1], [180, 200, 30], (2, len(user), 3))
    return vm.Measurements(
        user,
        *ends,
        -200.0 + np.arange(len(user)) * 0.5,
        bs=rng.integers(0, 4, len(user)),
        device=rng.integers(0, 2, len(user)),
    )


DATA = walkers()


def rows(part):
    return (2 * (part.gain_db + 200)).astype(int)


def squares(part):
    return [tuple(square) for square in np.floor(part.user_xyz[:, :2] / BLOCK).tolist()]


SCHEMES = {
    "users": (lambda **options: by_users(DATA, **options), lambda part: part.user.tolist()),
    "blocks": (lambda **options: by_blocks(DATA, block=BLOCK, **options), squares),
}
schemes = pytest.mark.parametrize(("make", "groups_of"), SCHEMES.values(), ids=SCHEMES)


@schemes
@pytest.mark.parametrize("folds", [2, 5])
def test_every_row_is_tested_once_and_learned_from_otherwise(make, groups_of, folds):
    made = list(make(folds=folds))
    assert [fold.number for fold in made] == list(range(folds))
    tested = np.concatenate([rows(fold.test) for fold in made])
    assert sorted(tested) == list(range(len(DATA)))
    for fold in made:
        both = np.concatenate([rows(fold.train), rows(fold.test)])
        assert sorted(both) == list(range(len(DATA)))
        for part in (fold.train, fold.test):
            own = DATA.select(rows(part))
            for name in ("user", "user_xyz", "bs_xyz", "bs", "device"):
                np.testing.assert_array_equal(getattr(part, name), getattr(own, name))


@schemes
def test_no_group_is_on_both_sides_and_parts_are_groups(make, groups_of):
    for fold in make():
        assert not set(groups_of(fold.train)) & set(groups_of(fold.test))
        # A part for every group and a group for every part.
        pairs = set(zip(fold.part.tolist(), groups_of(fold.train), strict=True))
        assert len(pairs) == len(set(fold.part.tolist())) == len(set(groups_of(fold.train)))


@schemes
def test_folds_hold_as_many_groups_as_each_other(make, groups_of):
    counts = [len(set(groups_of(fold.test))) for fold in make(folds=4)]
    assert max(counts) - min(counts) <= 1


@schemes
def test_the_seed_alone_decides(make, groups_of):
    def tested(**options):
        return [rows(fold.test).tolist() for fold in make(**options)]

    assert tested() == tested(seed=0)
    assert tested(seed=1) == tested(seed=1)
    assert tested(seed=1) != tested(seed=2)


def test_groups_are_not_taken_in_their_order():
    """Neighbours in a list must not stay together, nor take turns."""
    fold_of = {}
    for fold in by_users(walkers(60), 5):
        fold_of |= dict.fromkeys(fold.test.user.tolist(), fold.number)
    numbers = np.array([fold_of[user] for user in sorted(fold_of)])
    # Of 59 pairs of neighbours about a fifth share a fold by chance.
    together = np.mean(np.diff(numbers) == 0)
    assert abs(together - 0.2) < 4 * np.sqrt(0.2 * 0.8 / 59)
    assert not np.array_equal(numbers, np.arange(60) % 5)


def test_schemes_say_what_they_are():
    assert next(by_users(DATA)).scheme == "random users"
    assert next(by_blocks(DATA, block=50.0)).scheme == "blocks of 50 m"
    assert next(by_blocks(DATA, block=12.5)).scheme == "blocks of 12.5 m"
    assert next(few_links(DATA, 20)).scheme == "20 links"


def test_few_links_are_some_of_the_training_rows_of_random_users():
    for few, whole in zip(few_links(DATA, 20, 3, seed=4), by_users(DATA, 3, seed=4), strict=True):
        assert len(few.train) == len(few.part) == 20
        assert set(rows(few.train)) <= set(rows(whole.train))
        np.testing.assert_array_equal(rows(few.test), rows(whole.test))
        part_of = dict(zip(rows(whole.train), whole.part, strict=True))
        assert few.part.tolist() == [part_of[row] for row in rows(few.train)]
    again = [rows(fold.train).tolist() for fold in few_links(DATA, 20, 3, seed=4)]
    assert again == [rows(fold.train).tolist() for fold in few_links(DATA, 20, 3, seed=4)]
    everything = next(few_links(DATA, len(next(by_users(DATA, 3)).train), 3))
    assert sorted(rows(everything.train)) == sorted(rows(next(by_users(DATA, 3)).train))


@schemes
def test_validation_rows_are_set_aside_as_the_test_rows_were(make, groups_of):
    for fold in make():
        learned, aside, groups = fold.for_validation(share=0.3)
        assert sorted([*rows(learned), *rows(aside)]) == sorted(rows(fold.train))
        assert not set(groups_of(learned)) & set(groups_of(aside))
        pairs = set(zip(groups.tolist(), groups_of(aside), strict=True))
        assert len(pairs) == len(set(groups.tolist()))
        assert len(pairs) == round(0.3 * len(set(groups_of(fold.train))))
        again = fold.for_validation(share=0.3)
        np.testing.assert_array_equal(rows(again[1]), rows(aside))
        other = fold.for_validation(share=0.3, seed=1)
        assert set(rows(other[1])) != set(rows(aside))


def test_validation_needs_two_groups():
    few = DATA.select(np.arange(6))
    alone = Fold("one", 0, few, few, np.zeros(6, dtype=np.int64))
    with pytest.raises(DataError):
        alone.for_validation()
    pair = Fold("two", 0, few, few, np.array([3, 3, 3, 3, 8, 8]))
    learned, aside, groups = pair.for_validation()
    assert sorted([len(learned), len(aside)]) == [2, 4]
    assert len(set(groups.tolist())) == 1


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: by_users(DATA, 24), "folds"),
        (lambda: by_blocks(DATA, block=1e4), "folds"),
        (lambda: by_users(DATA, 1), "folds"),
        (lambda: by_users(DATA, 2.5), "folds"),
        (lambda: by_blocks(DATA, block=0), "block"),
        (lambda: few_links(DATA, 9), "links"),
        (lambda: few_links(DATA, 5000), "links"),
    ],
)
def test_what_cannot_be_divided_is_refused(make, parameter):
    with pytest.raises(ConfigurationError) as raised:
        list(make())
    assert raised.value.parameter == parameter


def test_as_many_groups_as_folds_are_enough():
    assert [len(set(fold.test.user)) for fold in by_users(DATA, 23)] == [1] * 23
