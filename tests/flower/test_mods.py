"""Noise mods in Flower apps that are no radio maps."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the Flower engine is an optional extra")

from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.app.user_config import UserConfig

import fakegrid  # noqa: F401  stamps messages
import veilmap as vm
from refusals import refused
from veilmap.errors import ConfigurationError
from veilmap.flower import GeometryAlignedMod, UniformNoiseMod
from veilmap.privacy import noise

GRID = vm.Grid(5.0, (12, 10))
HERE = (14.0, 31.0)
MODS = {"uniform": UniformNoiseMod, "aligned": GeometryAlignedMod}


def made(kind=GeometryAlignedMod, **options):
    return kind(**{"grid": GRID, "position": lambda context: HERE, "seed": 1} | options)


def context(number=7):
    return Context(run_id=1, node_id=number, node_config=UserConfig(), state=RecordDict(),
                   run_config=UserConfig())  # fmt: skip


def message(**arrays):
    stored = ArrayRecord({name: Array(np.asarray(a)) for name, a in arrays.items()})
    return Message(RecordDict({"arrays": stored}), 1, "train")


def app(**arrays):
    """An app that answers with these arrays, and with what it measured."""

    def call(received, _):
        content = message(**arrays).content
        content["metrics"] = MetricRecord({"num-examples": 3})
        return Message(content, reply_to=received)

    return call


def field(seed=0):
    values = np.random.default_rng(seed).normal(size=GRID.shape) * 0.05
    values[6, 2] = 0.9
    return values


@pytest.mark.parametrize("name", MODS)
def test_a_mod_sends_what_its_mechanism_makes(name):
    mod = made(MODS[name], noise_budget=4.0, clip=0.5)
    reply = mod(message(), context(), app(heat=field(), bias=np.arange(3.0)))
    draw = noise.draw(1, "7/heat", 0)
    wanted = mod.mechanism.protect(field().reshape(1, -1), GRID, [HERE], [draw]).uploads
    np.testing.assert_array_equal(
        reply.content["arrays"]["heat"].numpy(), wanted.reshape(GRID.shape)
    )
    np.testing.assert_array_equal(reply.content["arrays"]["bias"].numpy(), np.arange(3.0))
    assert reply.content["metrics"]["num-examples"] == 3


def test_the_noise_of_a_whole_model_goes_to_its_change():
    before = 100.0 + field(3)
    mod = made(sends="model", noise_budget=1.0)
    reply = mod(message(heat=before), context(), app(heat=before + field()))
    change = reply.content["arrays"]["heat"].numpy() - before
    # Clipped to 1, with as much noise energy on top: nowhere near the model's own size.
    assert 0.5 < np.linalg.norm(change) < 4.0


def test_noise_is_never_used_twice_and_comes_from_the_system_without_a_seed():
    here = context()
    sent = [made()(message(), here, app(heat=field())) for _ in range(2)]
    first, second = (reply.content["arrays"]["heat"].numpy() for reply in sent)
    assert not np.array_equal(first, second)
    unseeded = [made(seed=None)(message(), context(), app(heat=field())) for _ in range(2)]
    first, second = (reply.content["arrays"]["heat"].numpy() for reply in unseeded)
    assert not np.array_equal(first, second)


def test_single_precision_stays_single_precision():
    reply = made()(message(), context(), app(heat=field().astype(np.float32)))
    assert reply.content["arrays"]["heat"].numpy().dtype == np.float32


def test_the_centroid_of_an_upload_is_led_away_from_the_node():
    from veilmap.attacks.centroid import centroids

    away = {}
    for name, kind in MODS.items():
        errors = []
        for number in range(40):
            mod = made(kind, noise_budget=20.0)
            reply = mod(message(), context(number), app(heat=field(number)))
            upload = reply.content["arrays"]["heat"].numpy().reshape(1, -1)
            errors.append(np.linalg.norm(centroids(upload**2, GRID)[0] - HERE))
        away[name] = np.mean(errors)
    assert away["aligned"] > away["uniform"] + 2.0


def test_errors_of_the_app_pass_through():
    def failing(received, _):
        return Message(Error(code=1, reason="no data"), reply_to=received)

    assert made()(message(), context(), failing).has_error()


@pytest.mark.parametrize(
    ("options", "arrays", "named"),
    [
        ({}, {"bias": np.ones(3)}, ["120 entries"]),
        ({"arrays": ["bias"]}, {"bias": np.ones(3)}, ["'bias'", "3 entries", "120 cells"]),
        ({"sends": "model"}, {"heat": field()}, ["'heat'"]),
    ],
)
def test_what_cannot_be_protected_is_not_sent(options, arrays, named):
    with refused(ConfigurationError, *named):
        made(**options)(message(), context(), app(**arrays))


@pytest.mark.parametrize(
    "options",
    [{"sends": "gradients"}, {"noise_budget": -1.0}, {"clip": 0.0}, {"tradeoff": -2.0}],
)
def test_wrong_parameters_are_refused(options):
    with refused(ConfigurationError, *options):
        made(**options)


_EXAMPLE = """
import sys
sys.path.insert(0, sys.argv[1])
import veilmap.flower  # switches telemetry off before Flower is imported
import numpy as np
from flwr.simulation import run_simulation
import heat_map
from heat_map import client_app, server_app
if __name__ == "__main__":
    alone = {"init_args": {"address": "local"}}  # whatever clusters other tests have started
    run_simulation(server_app.app, client_app.app, 30, backend_config=alone)
    heat = np.load("heat.npy")
    true = np.mean([heat_map.visits(n) for n in range(30)], axis=0)
    print("correlation", np.corrcoef(heat.ravel(), true.ravel())[0, 1])
"""


def test_the_heat_map_example_learns_where_people_walk(tmp_path):
    pytest.importorskip("ray", reason="Flower's simulation needs Ray")
    example = Path(__file__).parents[2] / "examples" / "heat_map"
    script = tmp_path / "run.py"
    script.write_text(_EXAMPLE)
    # Ray's workers import the app by name.
    environment = os.environ | {"PYTHONPATH": str(example)}
    done = subprocess.run(
        [sys.executable, str(script), str(example)], capture_output=True, text=True, timeout=300,
        check=False, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    # 0.866 ± 0.005 over repeated runs: the noise has no seed.
    assert float(done.stdout.split()[-1]) > 0.8, done.stdout
