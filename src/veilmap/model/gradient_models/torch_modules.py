"""PyTorch modules."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from veilmap._util import extras
from veilmap._util.arrays import Floats
from veilmap.errors import ConfigurationError
from veilmap.model.gradient_models.base import Parameters, Records


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
    """

    module: Any
    loss: Callable[[Any, Any], Any] | None = None
    inputs_of: Callable[[Records], Floats] = lambda records: records.columns
    layer: str | None = None

    def __post_init__(self) -> None:
        extras.require("torch", "a model of PyTorch's", "torch")
        if not list(self.module.parameters()):
            raise ConfigurationError("module has no parameters to learn", "module")
        if self.layer is not None and self.layer not in dict(self.module.named_modules()):
            raise ConfigurationError(f"module has no layer {self.layer!r}", "layer")

    @cached_property
    def parameters(self) -> Parameters:
        """Those of the module, by name, as they were when first asked for."""
        return {
            name: values.detach().cpu().numpy().astype(np.float64)
            for name, values in self.module.named_parameters()
        }

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
        hook = layer.register_forward_pre_hook(lambda _, given: kept.append(given[0].detach()))
        try:
            self.module(self._given(records))
        finally:
            hook.remove()
        return np.asarray(kept[0].cpu().numpy(), dtype=np.float64)

    def gradient(self, parameters: Parameters, records: Records) -> Parameters:
        """Of the loss."""
        import torch

        assert not isinstance(parameters, np.ndarray)  # they are named, as `parameters` are
        given = {
            name: torch.as_tensor(values, dtype=self._first.dtype, device=self._first.device)
            for name, values in parameters.items()
        }
        for values in given.values():
            values.requires_grad_(True)
        found = torch.func.functional_call(self.module, given, (self._given(records),))
        target = self._tensor(records.target)
        value = (self.loss or torch.nn.functional.mse_loss)(found.reshape(target.shape), target)
        slopes = torch.autograd.grad(value, list(given.values()), materialize_grads=True)
        return {
            name: slope.cpu().numpy().astype(np.float64)
            for name, slope in zip(given, slopes, strict=True)
        }

    @cached_property
    def _first(self) -> Any:
        return next(iter(self.module.parameters()))

    def _given(self, records: Records) -> Any:
        return self._tensor(self.inputs_of(records))

    def _tensor(self, values: Floats) -> Any:
        import torch

        return torch.as_tensor(values, dtype=self._first.dtype, device=self._first.device)
