"""A dense first layer tells its input: the gradient of its weights over that of its bias."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from veilmap._util.arrays import Floats
from veilmap.attacks.any_model.base import (
    LEAST_LEFT,
    GradientAttack,
    SeenGradients,
    answered,
    refined,
)
from veilmap.attacks.any_model.places import Places
from veilmap.attacks.base import Estimates
from veilmap.errors import ConfigurationError
from veilmap.model.gradient_models import HasFirstLayer
from veilmap.model.gradient_models.base import shaped


@dataclass(frozen=True)
class FirstLayer(GradientAttack):
    """The place whose input to the first layer is the ratio of weights to bias.

    For one record with input z and the layer's slopes δ, ∂F/∂W = δ zᵀ and ∂F/∂b = δ: every row's
    ratio is z itself, whatever lies behind the layer (Aono, Hayashi, Wang and Moriai,
    "Privacy-preserving deep learning: revisited and enhanced", ATIS 2017). Of several records it
    is their mean, weighted by δ. With noise no row's ratio is exact; the best z is the one for
    which δ (z, 1)ᵀ explains most of (∂F/∂W, ∂F/∂b).
    """

    name = "first layer"

    def applies(self, places: Places) -> bool:
        """Whether the model says that its first layer is dense."""
        return isinstance(places.model, HasFirstLayer) and places.model.first_layer is not None

    def locate(self, seen: SeenGradients, places: Places) -> Estimates:
        """Mean places of the beliefs."""
        inputs = np.array([_input(places, xy) for xy in places.grid.centres])  # (K, F)
        tells = np.ptp(inputs, axis=0) > 0  # inputs that depend on the place
        layers = [_layer(places, upload, tells) for upload in seen.uploads]
        evidence = np.array([_evidence(layer, inputs[:, tells]) for layer in layers])

        def at(layer: Floats, xy: Floats) -> float:
            return float(_evidence(layer, _input(places, xy)[None, tells])[0])

        likelihoods = [partial(at, layer) for layer in layers]
        xy, sharper = refined(evidence, places.grid, likelihoods)
        return answered(self, seen, xy, sharper, places.grid)


def _layer(places: Places, upload: Floats, tells: Floats) -> Floats:
    """(∂F/∂W, ∂F/∂b) without the inputs that say nothing about the place, (H, F + 1)."""
    parts, model = shaped(upload, places.model.parameters), places.model
    assert isinstance(model, HasFirstLayer)  # see `applies`
    assert model.first_layer is not None
    weight, bias = model.first_layer
    missing = {weight, bias} - set(parts) if isinstance(parts, Mapping) else {weight, bias}
    if missing:
        raise ConfigurationError(f"the model has no parameter {min(missing)!r}", "first_layer")
    assert isinstance(parts, Mapping)
    rows = parts[weight].reshape(np.size(parts[bias]), -1)
    if rows.shape[1] != len(tells):
        raise ConfigurationError(
            f"the first layer takes {rows.shape[1]} inputs, not {len(tells)}", "first_layer"
        )
    return np.hstack([rows[:, tells], parts[bias].reshape(-1, 1)])


def _input(places: Places, xy: Floats) -> Floats:
    """The mean input of a user at (x, y), (F,)."""
    assert isinstance(places.model, HasFirstLayer)
    return places.model.inputs(places.around(xy)).mean(axis=0)


def _evidence(layer: Floats, inputs: Floats) -> Floats:
    """Log-likelihood of inputs (k, F) given a layer's gradient, (k,).

    With n rows of normal numbers around δ (z, 1), δ normal too, what lies along (z, 1) has a
    variance of its own, at least that of the noise across it. Both are as they fit best.
    """
    rows, columns = layer.shape
    z = np.hstack([inputs, np.ones((len(inputs), 1))])
    total = max(float(np.sum(layer**2)), 1e-300)
    along = np.sum((layer @ z.T) ** 2, axis=0) / np.sum(z**2, axis=1) / total
    across = np.maximum(1 - along, LEAST_LEFT)
    apart = along > 1 / columns  # else both variances are the same
    told = np.log(np.maximum(along, LEAST_LEFT) * columns)
    left = np.log(across * columns / (columns - 1))
    return np.where(apart, -0.5 * rows * (told + (columns - 1) * left), 0.0)
