"""A dense first layer tells its input: the gradient of its weights over that of its bias."""

from collections.abc import Mapping
from dataclasses import dataclass

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
from veilmap.model.gradient_models import HasFirstLayer, Records
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
        inputs = _inputs(places, places.grid.centres)
        tells = np.ptp(inputs, axis=0) > 0  # inputs that depend on the place
        layers = [_layer(places, upload, tells) for upload in seen.uploads]
        evidence = np.array([_evidence(layer, inputs[:, tells]) for layer in layers])

        def likelihood(xy: Floats) -> Floats:
            own = _inputs(places, xy.reshape(-1, 2))[:, tells].reshape(*xy.shape[:2], -1)
            return np.array([_evidence(*each) for each in zip(layers, own, strict=True)])

        ratios = _solved(np.array([_ratio(layer) for layer in layers]), inputs[:, tells], places)
        xy, sharper = refined(evidence, places.grid, likelihood, ratios)
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


def _ratio(layer: Floats) -> Floats:
    """Inputs z of the δ (z, 1)ᵀ nearest to a layer's gradient, (F,)."""
    along = np.linalg.svd(layer)[2][0]
    return along[:-1] / (along[-1] if along[-1] != 0 else 1e-300)


def _solved(ratios: Floats, inputs: Floats, places: Places) -> Floats:
    """The places (n, 2) with inputs (n, F): exact where inputs are affine in the place."""
    west, east, south, north = places.grid.extent
    ones = np.ones((len(inputs), 1))
    solution = np.linalg.lstsq(np.hstack([inputs, ones]), places.grid.centres, rcond=None)[0]
    xy = np.clip(ratios, -1e9, 1e9) @ solution[:-1] + solution[-1]
    return np.clip(xy, [west, south], [east, north])


def _inputs(places: Places, xy: Floats) -> Floats:
    """The mean inputs of users at (n, 2), (n, F)."""
    assert isinstance(places.model, HasFirstLayer)
    users = [places.around(one) for one in xy]
    together = Records(*(np.concatenate(part) for part in zip(*map(_parts, users), strict=True)))
    starts = np.cumsum([0, *(len(own) for own in users[:-1])])
    sums = np.add.reduceat(places.model.inputs(together), starts, axis=0)
    return sums / np.array([len(own) for own in users])[:, None]


def _parts(records: Records) -> tuple[Floats, Floats, Floats]:
    return records.xy, records.target, records.features


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
