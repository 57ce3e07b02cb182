"""Users who answer every round with the links of one place."""

import numpy as np
import pytest

import veilmap as vm
from refusals import refused
from veilmap.data.whereabouts import Whereabouts
from veilmap.errors import ConfigurationError
from veilmap.federation import OnePlacePerRound


@pytest.fixture(scope="module")
def town():
    scene = vm.Scene.synthetic(5, size=90.0, buildings=4, base_stations=60)
    return scene, scene.measure_walks(users=12, places=6, links_per_place=8, seed=0)


def trained(town, rounds=4, seed=0, **settings):
    scene, data = town
    settings = {"recording": vm.Recording(keep_uploads="all")} | settings
    return vm.train(
        data, scene.grid, rounds=rounds, seed=seed, engine=OnePlacePerRound(), **settings
    )


def test_an_upload_is_the_gradient_of_one_place(town):
    _, data = town
    run, where = trained(town, mechanism=vm.NoNoise(clip=1e6)), Whereabouts.of(data)
    for number in range(4):
        seen = run.transcript.uploads(number)
        for user, upload, weight in zip(seen.clients, seen.uploads, seen.weight, strict=True):
            of_places = [
                data.select(where.place == place) for place in np.flatnonzero(where.user == user)
            ]
            gradients = [
                vm.local_gradients(seen.broadcast.radio_map, own).height_gradient[0]
                for own in of_places
            ]
            apart = [np.abs(upload - gradient).max() for gradient in gradients]
            best = int(np.argmin(apart))
            assert apart[best] < 1e-5 * np.abs(upload).max() + 1e-12
            assert len(of_places[best]) == weight


def test_users_are_where_they_have_most_links_most_of_the_time(town):
    run = trained(town, rounds=100)
    weights = np.concatenate([run.transcript.uploads(n).weight for n in range(100)])
    counts = Whereabouts.of(town[1]).links[:6]
    home = counts.max()
    share = home / counts.sum()
    # Four deviations of a share among 1,200 rounds of users.
    apart = 4 * np.sqrt(share * (1 - share) / len(weights))
    assert abs(np.mean(weights == home) - share) < apart


def test_the_same_seed_gives_the_same_places(town):
    one, two, other = trained(town), trained(town), trained(town, seed=1)
    np.testing.assert_array_equal(one.radio_map.heights, two.radio_map.heights)
    assert (one.radio_map.heights != other.radio_map.heights).any()
    weights = [one.transcript.uploads(number).weight.tolist() for number in range(4)]
    assert len({tuple(row) for row in weights}) > 1


def test_whether_uploads_are_kept_makes_no_difference(town):
    kept, unkept = trained(town), trained(town, recording=vm.Recording())
    np.testing.assert_array_equal(kept.radio_map.heights, unkept.radio_map.heights)


def test_a_run_goes_on_as_if_undisturbed(town, tmp_path):
    def stop(row):
        if row.round == 1:
            raise KeyboardInterrupt

    out = {"out": tmp_path / "run", "checkpoint_every": 1}
    with pytest.raises(KeyboardInterrupt):
        trained(town, recording=vm.Recording(**out, on_round=stop))
    resumed = trained(town, recording=vm.Recording(**out, resume=True))
    np.testing.assert_array_equal(resumed.radio_map.heights, trained(town).radio_map.heights)


def test_only_measurements_in_memory_are_taken(town, tmp_path):
    scene, data = town
    data.save(tmp_path / "part-0.parquet")
    with refused(ConfigurationError, parameter="data"):
        trained((scene, vm.MeasurementFolder(tmp_path)))
