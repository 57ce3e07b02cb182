"""Libraries that come with an extra."""

import importlib.util

from veilmap.errors import MissingExtraError


def require(module: str, what: str, extra: str = "geo") -> None:
    """Say what to install where ``module`` is missing; ``what`` needs it."""
    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(f"{what} needs {module}: pip install 'veilmap[{extra}]'", extra)
