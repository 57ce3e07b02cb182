import json
from dataclasses import replace

import pytest

import veilmap as vm
from veilmap.errors import RunFolderError
from veilmap.federation.config import Fingerprint, RunConfig

CONFIG = RunConfig(
    vm.Grid(3.0, (4, 5)),
    vm.AggregateGaussian(epsilon=8, delta=1e-3),
    "sums",
    7,
    None,
    vm.NoiseAwareStep(),
    vm.Participation(share=0.5),
    offset_stations=("a", 3),
    data=Fingerprint(12, 300, "ab"),
    source={"type": "Source", "data": "/home/links.csv"},
)


def test_a_configuration_is_read_back_as_it_was_written(tmp_path):
    CONFIG.save(tmp_path)
    assert RunConfig.load(tmp_path) == CONFIG


@pytest.mark.parametrize("data", [CONFIG.data, None])
def test_what_is_published_under_a_guarantee_says_nothing_of_the_data(data):
    published = replace(CONFIG, data=data).published()
    assert published.source is None
    assert published.data in (None, Fingerprint(12))
    open_one = replace(CONFIG, mechanism=vm.NoNoise())
    assert open_one.published() == open_one


@pytest.mark.parametrize(
    "change",
    [
        {"step": {"type": "Unknown", "rounds": "x"}},
        {"step": 3},
        {"source": 3},
        {"rounds": 2.5},
        {"seed": -1},
        {"grid": {"type": "NoNoise"}},
        {"data": {"type": "Fingerprint", "users": "many"}},
    ],
    ids=str,
)
def test_a_strangers_configuration_is_refused_in_one_line(tmp_path, change):
    CONFIG.save(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RunFolderError) as caught:
        RunConfig.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_configuration_is_refused(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("[" * 100_000)
    with pytest.raises(RunFolderError):
        RunConfig.load(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(RunFolderError):
        RunConfig.load(tmp_path)
