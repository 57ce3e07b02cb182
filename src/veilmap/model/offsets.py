"""What receivers and devices read beside the truth: one number for each, in dB."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import checks
from veilmap._util.arrays import Array, Floats, Ints
from veilmap._util.ids import Id, Known, in_order, places
from veilmap.errors import ConfigurationError


@dataclass(frozen=True)
class Offsets:
    """Offsets of base stations and kinds of devices that are not calibrated.

    ``values`` are in dB: first the stations', then the devices'; anybody else's is 0.
    """

    stations: tuple[Id, ...] = ()
    devices: tuple[Id, ...] = ()
    values: tuple[float, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for name in ("stations", "devices"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        values = checks.floats("values", self.values or np.zeros(len(self)))
        if values.shape != (len(self),) or not np.isfinite(values).all():
            raise ConfigurationError(f"{len(self)} offsets need as many finite numbers")
        object.__setattr__(self, "values", tuple(values.tolist()))

    def __len__(self) -> int:
        return len(self.stations) + len(self.devices)

    def moved_to(self, values: ArrayLike) -> "Offsets":
        """The same stations and devices with other offsets."""
        return replace(self, values=tuple(np.asarray(values, dtype=np.float64).tolist()))

    def of(self, bs: Array, device: Array | None = None) -> Floats:
        """The offset of every link, (J,), in dB; without devices, of calibrated ones."""
        known = np.append(self.values, 0.0)  # index −1: nobody we know
        return np.asarray(known[self.numbers_of(bs, device)].sum(axis=0))

    def numbers_of(self, bs: Array, device: Array | None = None) -> Ints:
        """Which offsets apply to each link, (2, J): its station's and its device's, or −1."""
        own = places(bs, self._stations)
        kinds = np.full_like(own, -1) if device is None else places(device, self._devices)
        return np.stack([own, np.where(kinds < 0, -1, kinds + len(self.stations))])

    @cached_property
    def _stations(self) -> Known:
        return in_order(self.stations)

    @cached_property
    def _devices(self) -> Known:
        return in_order(self.devices)


NONE = Offsets()
