"""Every attack on a run: ours, then those of other packages."""

import math
from collections.abc import Sequence
from typing import Any

from veilmap._util.plugins import Registry
from veilmap.attacks.base import Attack
from veilmap.attacks.cap_likelihood import CapLikelihood
from veilmap.attacks.centroid import WeightedCentroid
from veilmap.attacks.differencing import Differencing
from veilmap.attacks.gradient_inversion import GradientInversion
from veilmap.attacks.joint_inversion import JointInversion
from veilmap.attacks.matched_filter import MatchedFilter
from veilmap.attacks.plane_inversion import PlaneInversion
from veilmap.attacks.plane_subtraction import PlaneSubtraction
from veilmap.attacks.prior import PriorOnly
from veilmap.attacks.theta_inversion import ThetaInversion
from veilmap.errors import ConfigurationError

_OURS: tuple[Attack, ...] = (
    PriorOnly(),
    *(WeightedCentroid(power) for power in (1, 2, 5, 10, math.inf)),
    PlaneInversion(),
    PlaneSubtraction(),
    MatchedFilter(),
    GradientInversion(),
    ThetaInversion(),
    JointInversion(),
    Differencing(),
    CapLikelihood(),
)


def _checked(name: str, kind: Any) -> Attack:
    """What a plug-in's class makes without arguments, if it is an attack of that name."""
    made = kind()
    if not isinstance(made, Attack):
        raise ConfigurationError("it makes no veilmap.attacks.Attack")
    if made.name != name:
        raise ConfigurationError(f"its attack has the name {made.name!r}")
    return made


ATTACKS: Registry[Attack] = Registry("veilmap.attacks", {one.name: one for one in _OURS}, _checked)
"""Attacks by their names, in an order in which those that use others' results come after them."""


def attacks_named(names: Sequence[str]) -> list[Attack]:
    """The attacks of these names; the first words will do, with hyphens or spaces."""
    found: list[Attack] = []
    for name in names:
        words = name.replace("-", " ") + " "
        own = [
            one for one in ATTACKS if name == one or f"{one} ".replace("-", " ").startswith(words)
        ]
        if not own:
            known = ", ".join(ATTACKS)
            raise ConfigurationError(f"no attack {name!r}; there are {known}", "attacks")
        found += [ATTACKS[one] for one in own if one not in {other.name for other in found}]
    return found
