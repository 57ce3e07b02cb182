"""Libraries that come with an extra."""

import importlib.util

from veilmap.errors import MissingExtraError

# Nothing of ours phones home; Flower and Ray read these when they are imported.
WITHOUT_TELEMETRY = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else Ray warns about devices it does not use
}


def require(module: str, what: str, extra: str = "geo") -> None:
    """Say what to install where ``module`` is missing; ``what`` needs it."""
    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(f"{what} needs {module}: pip install 'veilmap[{extra}]'", extra)
