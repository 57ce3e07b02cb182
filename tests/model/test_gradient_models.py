"""Models of other people: gradients are those of their losses, whatever they are written in."""

from types import SimpleNamespace

import numpy as np
import pytest

import networks
import veilmap as vm
from refusals import refused
from veilmap.errors import ConfigurationError, DataError, MissingExtraError
from veilmap.model.gradient_models import (
    FunctionModel,
    HasFirstLayer,
    LinearModel,
    RadioMapModel,
    TorchModel,
    base,
)
from veilmap.model.gradient_models.base import flat, gradient_of, gradients_of, shaped

RECORDS = vm.Records([[10.0, 20.0], [200.0, 40.0], [90.0, 290.0]], [0.3, -1.0, 0.7])


def slopes(loss, vector, step=1e-6):
    """∂loss by finite differences."""
    unit = step * np.eye(len(vector))
    return np.array([(loss(vector + e) - loss(vector - e)) / (2 * step) for e in unit])


def test_parameters_keep_their_shapes_and_order():
    parameters = networks.network().parameters
    vector = flat(parameters)
    back = shaped(vector, parameters)
    assert list(back) == list(parameters)
    for name, part in parameters.items():
        np.testing.assert_array_equal(back[name], part)
    np.testing.assert_array_equal(shaped(vector[:6], np.zeros((2, 3))), vector[:6].reshape(2, 3))


def test_the_tests_own_network_has_the_gradient_of_its_loss():
    model = networks.network()

    def loss(vector):
        found = networks.predicted(shaped(vector, model.parameters), RECORDS)
        return np.mean((found - RECORDS.target) ** 2)

    vector = flat(model.parameters)
    wanted = slopes(loss, vector)
    np.testing.assert_allclose(gradient_of(model, vector, RECORDS), wanted, atol=1e-7)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_linear_estimator_has_the_gradient_of_squared_loss(fit_intercept):
    linear = pytest.importorskip("sklearn.linear_model", reason="an optional extra")
    fitted = linear.Ridge(fit_intercept=fit_intercept).fit(RECORDS.columns, RECORDS.target)
    model = LinearModel(fitted)
    vector = flat(model.parameters)

    def loss(vector):
        bias = vector[2] if fit_intercept else 0.0
        return np.mean((RECORDS.columns @ vector[:2] + bias - RECORDS.target) ** 2)

    np.testing.assert_allclose(
        gradient_of(model, vector, RECORDS), slopes(loss, vector), rtol=1e-5, atol=1e-6
    )
    assert np.isclose(
        loss(vector), np.mean((fitted.predict(RECORDS.columns) - RECORDS.target) ** 2)
    )
    assert (model.first_layer is not None) == fit_intercept


def torch_twin(model):
    """The tests' network as a module, with scaling of its own before the first layer."""
    torch = pytest.importorskip("torch", reason="an optional extra")

    class Scaled(torch.nn.Module):
        def forward(self, xy):
            return xy / 150 - 1

    width = len(model.parameters["b1"])
    module = torch.nn.Sequential(
        Scaled(), torch.nn.Linear(2, width), torch.nn.Tanh(), torch.nn.Linear(width, 1)
    ).double()
    with torch.no_grad():
        for own, given in zip(module.parameters(), model.parameters.values(), strict=True):
            own.copy_(torch.as_tensor(given))
    return module


def test_a_module_has_the_gradient_of_the_same_network_in_numpy():
    ours = networks.network()
    model = TorchModel(torch_twin(ours))
    assert model.first_layer == ("1.weight", "1.bias")
    assert isinstance(model, HasFirstLayer)
    np.testing.assert_allclose(model.inputs(RECORDS), networks.scaled(RECORDS), rtol=1e-12)
    vector = flat(ours.parameters)
    np.testing.assert_array_equal(flat(model.parameters), vector)
    for at in (vector, vector + 0.1):
        np.testing.assert_allclose(
            gradient_of(model, at, RECORDS), gradient_of(ours, at, RECORDS), rtol=1e-9, atol=1e-12
        )


def test_a_module_takes_any_loss_and_keeps_its_own_parameters():
    torch = pytest.importorskip("torch", reason="an optional extra")
    module = torch_twin(networks.network())
    model = TorchModel(module, torch.nn.L1Loss())
    before = flat(model.parameters)

    def loss(vector):
        found = networks.predicted(shaped(vector, networks.network().parameters), RECORDS)
        return np.mean(np.abs(found - RECORDS.target))

    np.testing.assert_allclose(gradient_of(model, before, RECORDS), slopes(loss, before), atol=1e-7)
    gradient_of(model, before + 1.0, RECORDS)
    np.testing.assert_array_equal(flat(TorchModel(module).parameters), before)


def test_layers_are_refused_that_are_not_there():
    pytest.importorskip("torch", reason="an optional extra")
    with refused(ConfigurationError, "nowhere", parameter="layer"):
        TorchModel(torch_twin(networks.network()), layer="nowhere")


def test_where_torch_is_missing_an_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refused(MissingExtraError, "torch", "pip install", extra="torch"):
        TorchModel(None)


def test_a_wrapped_radio_map_has_the_gradients_that_users_of_ours_compute():
    scene = vm.Scene.synthetic(1, size=60.0, buildings=2, base_stations=12)
    data = scene.measure(users=5, links_per_user=7, seed=0)
    radio_map = vm.RadioMap(scene.grid, np.full(scene.grid.cells, 8.0), sharpness=0.4)
    wanted = vm.local_gradients(radio_map, data).height_gradient
    model = RadioMapModel(radio_map)
    for row, records in zip(wanted, RadioMapModel.records(data), strict=True):
        np.testing.assert_array_equal(gradient_of(model, flat(model.parameters), records), row)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: vm.Records([[0.0, 1.0]], [1.0, 2.0]), ["target"]),
        (lambda: vm.Records(np.empty((0, 2)), []), ["xy"]),
        (lambda: vm.Records([[0.0, 1.0]], [np.nan]), ["target"]),
        (lambda: vm.Records([[0.0, 1.0]], [1.0], np.ones((2, 1))), ["features"]),
    ],
)
def test_records_that_do_not_fit_are_refused(make, named):
    with refused(DataError, *named):
        make()


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: LinearModel(SimpleNamespace()), "estimator"),
        (
            lambda: LinearModel(SimpleNamespace(coef_=np.ones((2, 2)), intercept_=np.ones(2))),
            "estimator",
        ),
        (
            lambda: RadioMapModel(
                vm.RadioMap(vm.Grid(1.0, (2, 2)), np.zeros(4), offsets=vm_offsets())
            ),
            "radio_map",
        ),
        (
            lambda: gradient_of(
                FunctionModel(np.zeros(3), lambda p, r: np.zeros(2)), np.zeros(3), RECORDS
            ),
            "model",
        ),
        (
            lambda: gradient_of(
                FunctionModel(np.zeros(3), lambda p, r: np.full(3, np.inf)), np.zeros(3), RECORDS
            ),
            "model",
        ),
    ],
)
def test_models_that_cannot_be_audited_are_refused(make, parameter):
    with refused(ConfigurationError, parameter=parameter):
        make()


def vm_offsets():
    from veilmap.model.offsets import Offsets

    return Offsets(("a",), ())


@pytest.mark.parametrize("lengths", [[1, 1, 1], [3, 1, 2]])
@pytest.mark.parametrize("batched", [True, False])
def test_gradients_of_many_users_are_those_of_each(lengths, batched, monkeypatch):
    model = TorchModel(torch_twin(networks.network()), batched=batched)
    monkeypatch.setattr(base, "_BATCH", 2 * len(flat(model.parameters)))  # two users at once
    people = [RECORDS.select(np.arange(length)) for length in lengths]
    vector = flat(model.parameters) + 0.05
    wanted = np.array([gradient_of(model, vector, own) for own in people])
    np.testing.assert_allclose(gradients_of(model, vector, people), wanted, rtol=1e-9, atol=1e-12)
