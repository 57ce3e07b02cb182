"""PyTorch modules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from veilmap._util import extras
from veilmap._util.arrays import Floats
from veilmap.errors import ConfigurationError
from veilmap.model.gradient_models.base import Parameters, Records, flat


@dataclass(frozen=True, eq=False)
class TorchModel:
    """A PyTorch module with a loss; gradients are taken in the module's own precision.

    Parameters
    ----------
    module : torch.nn.Module
        From inputs (J, F) to predictions (J,) or (J, 1).
    loss : callable, optional
        From predictions (J,) and targets (J,) to one number; by default the mean squared error.
    inputs_of : callable, optional
        What the module takes of records, (J, F); by default x, y and the features.
    layer : str, optional
        Name of the first dense layer within the module; by default its first `torch.nn.Linear`
        with a bias.
    batched : bool
        Whether `torch.func.vmap` can take the module, which is faster: without dropout, for one.
    """

    module: Any
    loss: Callable[[Any, Any], Any] | None = None
    inputs_of: Callable[[Records], Floats] = lambda records: records.columns
    layer: str | None = None
    batched: bool = True

    def __post_init__(self) -> None:
        extras.require("torch", "a model of PyTorch's", "torch")
        if not list(self.module.parameters()):
            raise ConfigurationError("module has no parameters to learn", "module")
        if self.layer is not None and self.layer not in dict(self.module.named_modules()):
            raise ConfigurationError(f"module has no layer {self.layer!r}", "layer")

    @cached_property
    def parameters(self) -> Parameters:
        """Those of the module, by name, as they were when first asked for."""
        return {name: _array(values) for name, values in self.module.named_parameters()}

    @cached_property
    def _dense(self) -> str | None:
        import torch

        named = dict(self.module.named_modules())
        names = [self.layer] if self.layer is not None else list(named)
        kinds = ((name, named[name]) for name in names)
        dense = (n for n, kind in kinds if isinstance(kind, torch.nn.Linear))
        return next((name for name in dense if named[name].bias is not None), None)

    @property
    def first_layer(self) -> tuple[str, str] | None:
        """Names of its weight and bias."""
        if self._dense is None:
            return None
        prefix = f"{self._dense}." if self._dense else ""
        return f"{prefix}weight", f"{prefix}bias"

    def inputs(self, records: Records) -> Floats:
        """What reaches the first dense layer, (J, F), after whatever the module does before it."""
        assert self._dense is not None, "no dense layer, see `first_layer`"
        kept: list[Any] = []
        layer = dict(self.module.named_modules())[self._dense]
        hook = layer.register_forward_pre_hook(lambda _, given: kept.append(given[0]))
        try:
            self.module(self._tensor(self.inputs_of(records)))
        finally:
            hook.remove()
        return _array(kept[0])

    def gradient(self, parameters: Parameters, records: Records) -> Parameters:
        """Of the loss."""
        import torch

        given = self._on_device(parameters)
        inputs, target = self._tensor(self.inputs_of(records)), self._tensor(records.target)
        slopes = torch.func.grad(self._loss_of)(given, inputs, target)
        return {name: _array(slope) for name, slope in slopes.items()}

    def gradients(self, parameters: Parameters, users: Sequence[Records]) -> Floats:
        """Of each user's loss, flat, (n, M): at once for users with as many records."""
        import torch

        if not self.batched or len({len(own) for own in users}) > 1:
            return np.array([flat(self.gradient(parameters, own)) for own in users])
        inputs = self._tensor(np.stack([self.inputs_of(own) for own in users]))
        targets = self._tensor(np.stack([own.target for own in users]))
        each = torch.func.vmap(torch.func.grad(self._loss_of), in_dims=(None, 0, 0))
        slopes = each(self._on_device(parameters), inputs, targets)
        return np.hstack([_array(slope).reshape(len(users), -1) for slope in slopes.values()])

    def _loss_of(self, given: Any, inputs: Any, target: Any) -> Any:
        """Of one user's records under parameters ``given``."""
        import torch

        found = torch.func.functional_call(self.module, given, (inputs,))
        return (self.loss or torch.nn.functional.mse_loss)(found.reshape(target.shape), target)

    def _on_device(self, parameters: Parameters) -> dict[str, Any]:
        assert not isinstance(parameters, np.ndarray)  # they are named, as `parameters` are
        return {name: self._tensor(values) for name, values in parameters.items()}

    @cached_property
    def _first(self) -> Any:
        return next(iter(self.module.parameters()))

    def _tensor(self, values: Floats) -> Any:
        import torch

        return torch.as_tensor(values, dtype=self._first.dtype, device=self._first.device)


def _array(values: Any) -> Floats:
    """A tensor's numbers."""
    return np.asarray(values.detach().cpu().numpy(), dtype=np.float64)
