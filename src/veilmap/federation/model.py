"""What a map is made of, and what it may start from."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from numpy.typing import ArrayLike

from veilmap._util.ids import Id
from veilmap.errors import ConfigurationError
from veilmap.federation.residual import ThenField
from veilmap.federation.steps import NoiseAwareStep, StepRule

Calibrated = Literal["stations", "devices"]


@dataclass(frozen=True, eq=False)
class Model:
    """What is learned, and the public facts that it may start from.

    Parameters
    ----------
    step : StepRule
        What the server does with the mean gradient; with it, how the map starts.
    residual : float, optional
        Learn in the last rounds what obstacles leave over: a field for each base station with
        points this many metres apart. Its gradients show where users are, so that the server
        may see only sums.
    calibrate : "stations" and/or "devices"
        Learn an offset in dB of every base station or kind of device with θ: where receivers
        are not calibrated, or phones differ.
    stations : (positions, ids), optional
        Base stations as public facts: (B, 3) in metres and B ids, as `Measurements.stations`
        gives them. By default those that users measured; under a guarantee, where these would
        tell of users, none.
    station_errors : mapping, optional
        Root mean square errors in metres of those whose positions are estimates, by id.
    buildings : (rows, columns) array, optional
        Heights in metres that are public, 0 for open ground: where the map starts and what it
        is drawn to. It costs no privacy.
    """

    step: StepRule = field(default_factory=NoiseAwareStep)
    residual: float | None = None
    calibrate: Collection[Calibrated] = ()
    stations: tuple[ArrayLike, Sequence[Id]] | None = field(default=None, repr=False)
    buildings: ArrayLike | None = field(default=None, repr=False)
    station_errors: Mapping[str, float] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        unknown = set(self.calibrate) - {"stations", "devices"}
        if unknown or isinstance(self.calibrate, str):
            raise ConfigurationError(
                f"calibrate takes 'stations' and 'devices', not"
                f" {', '.join(map(repr, self.calibrate))}",
                "calibrate",
            )

    @property
    def steps(self) -> StepRule:
        """The step rule of all rounds, those of the field included."""
        return self.step if self.residual is None else ThenField(self.residual, self.step)
