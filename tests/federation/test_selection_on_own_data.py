"""A model chosen on one's own measurements, for others to be trained with."""

import numpy as np
import pytest

import veilmap as vm
from veilmap import cli
from veilmap.federation.selection import ModelChoice, chosen_on


def smooth_field(seed, links=900):
    """Log-distance and a smooth field around three stations: nothing that obstacles explain."""
    rng = np.random.default_rng(seed)
    stations = np.array([[0.0, 0.0, 30.0], [300.0, 0.0, 30.0], [150.0, 300.0, 30.0]])
    bs = rng.integers(0, 3, links)
    user = np.column_stack([rng.uniform(0, 300, (links, 2)), np.full(links, 1.5)])
    distance = np.linalg.norm(user - stations[bs], axis=1)
    wave = 8 * np.sin(user[:, 0] / 60 + bs) * np.cos(user[:, 1] / 50)
    gain = -30 - 30 * np.log10(distance) + wave + rng.normal(0, 1, links)
    return vm.Measurements(np.arange(links), user, stations[bs], gain, bs)


def test_what_is_smooth_gets_a_field_and_no_obstacles():
    data = smooth_field(0)
    grid = vm.Grid.covering(np.vstack([data.user_xyz, data.bs_xyz])[:, :2], 15.0)
    trial = chosen_on(data, grid, rounds=30)
    assert not trial.model.obstacles
    assert trial.model.residual is not None
    without = chosen_on(data, grid, rounds=30, residuals=(None,))
    assert without.model.residual is None
    assert without.mae_db > trial.mae_db + 1


def test_a_city_gets_obstacles():
    scene = vm.Scene.synthetic(0, base_stations=60)
    data = scene.measure(users=120, links_per_user=60, noise_db=2.0, seed=0)
    grid = vm.Grid.covering(np.vstack([data.user_xyz, data.bs_xyz])[:, :2], 6.0)
    trial = chosen_on(data, grid, rounds=60, residuals=(None,))
    assert trial.model.obstacles


@pytest.fixture
def files(tmp_path):
    for name, seed in (("links", 1), ("own", 2)):
        smooth_field(seed).save(tmp_path / f"{name}.csv")
    return tmp_path


def train(files, *options):
    with pytest.raises(SystemExit) as stop:
        cli.main([
            "train", str(files / "links.csv"), "--out", str(files / "run"), "--rounds", "10",
            "--cell-size", "30", "--seed", "0", "--choose-on", str(files / "own.csv"), *options,
        ])  # fmt: skip
    return stop.value.code


def test_the_command_says_what_it_chose_and_trains_it(files, capsys):
    assert train(files, "--mechanism", "none", "--server-sees", "sums") == 0
    assert "no obstacles, field of" in capsys.readouterr().out
    assert vm.RadioMap.load(files / "run" / "radio_map.nc").field is not None


def test_where_the_server_sees_uploads_no_field_is_chosen(files, capsys):
    assert train(files, "--mechanism", "none") == 0
    assert "field" not in capsys.readouterr().out
    assert vm.RadioMap.load(files / "run" / "radio_map.nc").field is None


@pytest.mark.parametrize("option", [("--degrees", "3"), ("--residual", "50")])
def test_what_is_chosen_cannot_be_given_too(files, capsys, option):
    assert train(files, *option) == 2
    assert "leave them out" in capsys.readouterr().err
    assert not (files / "run").exists()


def test_a_model_says_what_it_is():
    assert str(ModelChoice(degrees=3, residual=50)) == "obstacles of 3 degrees, field of 50 m"
    assert str(ModelChoice(obstacles=False)) == "no obstacles"
