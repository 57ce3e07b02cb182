"""The same clients and server on Flower: simulated in one command, or deployed on devices.

Flower carries messages, starts apps and authenticates nodes; nothing of that is written here.
It is an optional extra, and the only place that imports it is this folder.
"""

import importlib.util
import os

from veilmap.errors import VeilmapError

# Nothing of ours phones home; these are read when Flower and Ray are imported.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else Ray warns about devices it does not use
}
os.environ.update(QUIET)


def require(*, simulation: bool = False) -> None:
    """Say what to install where Flower is missing."""
    for module in ("flwr", "ray") if simulation else ("flwr",):
        if importlib.util.find_spec(module) is None:
            raise VeilmapError(
                f"the Flower engine needs {module}: pip install 'veilmap[flower]', or train"
                " without --engine flower"
            )
