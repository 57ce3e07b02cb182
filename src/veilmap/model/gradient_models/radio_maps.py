"""Our own radio map as a model like any other."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from veilmap._util import checks
from veilmap._util.arrays import Floats
from veilmap.data.links import Links
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid
from veilmap.model.gradient_models.base import Parameters, Records, flat
from veilmap.model.gradients import gradients_of
from veilmap.model.radio_map import HasLinks, RadioMap


@dataclass(frozen=True, eq=False)
class RadioMapModel:
    """The obstacles of a radio map as parameters, its laws being public and fixed.

    A record is a link: its features are the user's altitude and the base station's x, y and z.
    The gradient of θ is not part of it: `veilmap.audit` reads what rounds of ours send.
    """

    radio_map: RadioMap

    def __post_init__(self) -> None:
        known = self.radio_map
        if known.field is not None or len(known.offsets) or known.antennas is not None:
            raise ConfigurationError(
                "radio_map has a field, offsets or antennas, which need ids of base stations",
                "radio_map",
            )

    @property
    def grid(self) -> Grid:
        """Where the parameters lie."""
        return self.radio_map.grid

    @property
    def parameters(self) -> Parameters:
        """h, (M,)."""
        return self.radio_map.heights.ravel()

    def gradient(self, parameters: Parameters, records: Records) -> Parameters:
        """∂F_i/∂h, (M,)."""
        moved = self.radio_map.moved_to(flat(parameters), self.radio_map.theta)
        altitude, stations = records.features[:, :1], records.features[:, 1:]
        ends = np.hstack([records.xy, altitude]), np.ascontiguousarray(stations)
        links = Links(np.array([0, len(records)]), *ends, records.target)
        return gradients_of(moved, links).height_gradient[0]

    @staticmethod
    def records(data: HasLinks) -> list[Records]:
        """Everybody's links as records, in the order of the users."""
        links, made = data.links, []
        for first, last in zip(links.offsets[:-1], links.offsets[1:], strict=True):
            own = slice(first, last)
            user, features = links.user_xyz[own], links.bs_xyz[own]
            made.append(
                Records(user[:, :2], links.gain_db[own], np.hstack([user[:, 2:], features]))
            )
        return made

    @staticmethod
    def around(
        best_map: RadioMap, stations: ArrayLike, altitude: float = 1.5
    ) -> Callable[[Floats], Records]:
        """What a user at (x, y) measures of all public stations (B, 3), by the best map known."""
        masts = checks.points("stations", stations)

        def at(xy: Floats) -> Records:
            user = np.append(xy, altitude)
            features = np.hstack([np.full((len(masts), 1), altitude), masts])
            return Records(np.tile(xy, (len(masts), 1)), best_map.predict(user, masts), features)

        return at
