"""A whole survey on one machine: contributions, their sum, its noise, the map."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from veilmap.data.measurements import Measurements
from veilmap.errors import PrivacyError
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.mechanisms.lattice import discrete_gaussian
from veilmap.surveys.aggregate import OpenedSum, opened, summed
from veilmap.surveys.contribution import usable
from veilmap.surveys.design import Survey
from veilmap.surveys.posterior import Buildings, radio_map_of


@dataclass(frozen=True, eq=False)
class SurveyResult:
    """What a survey found: the opened sum, and the map that it tells."""

    opened: OpenedSum
    radio_map: RadioMap


def survey(
    data: Measurements,
    design: Survey,
    seed: int | None = None,
    *,
    buildings: Buildings | None = None,
    before_opening: Callable[[Survey, int, int | None], None] | None = None,
) -> SurveyResult:
    """Survey everybody in ``data``, on this machine.

    Without a ``seed`` the noise comes from the operating system; with one, for studies, it can be
    computed by whoever has the seed, and nothing is promised. ``buildings`` are public heights and
    the grid that they are on. ``before_opening`` is called with
    the design, the number of participants and the seed before any noise is drawn: there an
    account of what is opened is written.
    """
    users, owner = np.unique(data.user, return_inverse=True)
    if len(users) < design.participants:
        raise PrivacyError(
            f"{len(users)} participants are fewer than the {design.participants} whose sum may be"
            " opened"
        )
    xy = data.user_xyz[:, :2]
    kept = usable(design, xy, data.bs, data.gain_db).all(axis=0)
    total = summed(design, owner.reshape(-1)[kept], xy[kept], data.bs[kept], data.gain_db[kept])
    discrete_gaussian(design.deviation)  # noise that cannot be drawn is refused before the account
    if before_opening is not None:
        before_opening(design, len(users), seed)
    found = opened(design, total, len(users), seed)
    return SurveyResult(found, radio_map_of(found, buildings))
