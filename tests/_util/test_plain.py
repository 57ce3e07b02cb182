"""Configuration objects as plain data: what was written is read back, and nothing else."""

import json

import pytest

import veilmap as vm
from veilmap._util.plain import from_plain, to_plain
from veilmap.errors import DataError, VeilmapError
from veilmap.federation.residual import ThenField
from veilmap.model.propagation import Law

OBJECTS = [
    vm.Grid(2.0, (3, 4), (5.0, 6.0), "EPSG:32633"),
    vm.Tiling(300.0, 50.0),
    vm.Participation(share=0.5, in_turns=True),
    vm.Propagation(between=(Law(-35.0, -25.0, 0.1), Law(-35.0, -27.0, 0.02))),
    vm.NoiseAwareStep(start_height=3.0),
    vm.PlainDescent(heights_rate=2.0),
    ThenField(20.0, vm.NoiseAwareStep(), rounds=2),
    *(kind() for kind in vm.mechanisms.MECHANISMS.values()),
]


@pytest.mark.parametrize("made", OBJECTS, ids=lambda made: type(made).__name__)
def test_an_object_comes_back_from_json(made):
    content = json.loads(json.dumps(to_plain(made)))
    assert from_plain(content, type(made)) == made
    with pytest.raises(DataError):
        from_plain(content, Law)


@pytest.mark.parametrize(
    "content",
    [
        None, 3, [], {}, {"type": "Nothing"}, {"type": ["Grid"]}, {"type": "Grid", "colour": 1},
        {"type": "Grid", "shape": 3}, {"type": "Tiling", "side": -1},
        {"type": "Tiling", "side": []},
        {"type": "Propagation", "between": [1]},
    ],
)  # fmt: skip
def test_what_is_no_object_is_one_of_our_errors(content):
    with pytest.raises(VeilmapError):
        from_plain(content, vm.Grid)
