"""Batches that mislead: which records are left of them."""

import numpy as np
import pytest

import networks
import veilmap as vm
from refusals import refused
from veilmap.errors import ConfigurationError
from veilmap.privacy.batches import DiverseBatch, FarthestBatch, representatives


def stays(seed=0):
    """Forty records at home, three at work, and one on the way."""
    rng = np.random.default_rng(seed)
    home = np.array([50.0, 50.0]) + rng.normal(0, 5, (40, 2))
    work = np.array([250.0, 240.0]) + rng.normal(0, 5, (3, 2))
    xy = np.vstack([home, work, [[150.0, 150.0]]])
    return vm.Records(xy, rng.normal(size=44), np.arange(44.0)[:, None])


def test_each_cluster_is_left_once_and_its_record_is_whole():
    records = stays()
    left = DiverseBatch(radius=30)(records)
    assert len(left) == 3
    rows = left.features[:, 0].astype(int)
    np.testing.assert_array_equal(left.xy, records.xy[rows])
    np.testing.assert_array_equal(left.target, records.target[rows])
    # Home no longer outweighs the rest: the mean moves from there to the middle of the three.
    assert np.linalg.norm(records.xy.mean(axis=0) - [50, 50]) < 30
    np.testing.assert_allclose(left.xy.mean(axis=0), [150, 147], atol=10)


def test_the_farthest_batch_is_on_one_side():
    records = stays()
    far = FarthestBatch(radius=30)(records)
    assert len(far) == 1
    np.testing.assert_allclose(far.xy[0], [250, 240], atol=15)
    two = FarthestBatch(radius=30, size=2)(records)
    np.testing.assert_allclose(two.xy[1], [150, 150], atol=1e-9)
    assert len(FarthestBatch(radius=30, size=99)(records)) == 3


def clusters(xy, radius):
    """Those that chains of steps within ``radius`` join, by flooding."""
    near = np.linalg.norm(xy[:, None] - xy[None], axis=2) <= radius
    label = np.full(len(xy), -1)
    for start in range(len(xy)):
        todo = [start] if label[start] < 0 else []
        while todo:
            one = todo.pop()
            if label[one] < 0:
                label[one] = start
                todo += np.flatnonzero(near[one]).tolist()
    return label


@pytest.mark.parametrize("seed", range(5))
def test_clusters_are_those_of_chains_of_short_steps(seed):
    records = next(iter(networks.users(1, records=30, seed=seed, spread=40.0).values()))
    label = clusters(records.xy, 20.0)
    rows = representatives(records, 20.0)
    assert sorted(label[rows]) == sorted(np.unique(label))
    for row in rows:
        own = records.xy[label == label[row]]
        apart = np.linalg.norm(own - own.mean(axis=0), axis=1)
        assert np.linalg.norm(records.xy[row] - own.mean(axis=0)) == pytest.approx(apart.min())


def test_a_single_record_stays():
    one = vm.Records([[1.0, 2.0]], [3.0])
    assert len(DiverseBatch()(one)) == len(FarthestBatch()(one)) == 1


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: DiverseBatch(radius=0), "radius"),
        (lambda: FarthestBatch(radius=-1), "radius"),
        (lambda: FarthestBatch(size=0), "size"),
    ],
)
def test_wrong_parameters_are_refused(make, parameter):
    with refused(ConfigurationError, parameter=parameter):
        make()
