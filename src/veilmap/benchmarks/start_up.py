"""How long a user waits before anything happens."""

import os
import statistics
import subprocess
import sys
import tempfile

from veilmap.benchmarks._figure import Figure

_IMPORT = "import time; t = time.perf_counter(); import veilmap; print(time.perf_counter() - t)"
_FIRST_PASS = """
import time, numpy as np
from veilmap.benchmarks import growth
t = time.perf_counter()
growth.one_pass(1000, 0)
print(time.perf_counter() - t)
"""


def measure(seed: int) -> list[Figure]:
    """Import time, and the first pass before and after kernels are in the cache."""
    imports = statistics.median(_seconds(_IMPORT) for _ in range(5))
    with tempfile.TemporaryDirectory() as cache:
        compiled = _seconds(_FIRST_PASS, NUMBA_CACHE_DIR=cache)
        cached = statistics.median(_seconds(_FIRST_PASS, NUMBA_CACHE_DIR=cache) for _ in range(3))
    return [
        Figure("import veilmap", imports, "s", at_most=1),
        Figure("first pass ever (compiles)", compiled, "s"),
        Figure("first pass in a later process (cached)", cached, "s"),
        Figure("compiling / cached", compiled / cached, "×"),
    ]


def _seconds(script: str, **environment: str) -> float:
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, check=True, env=os.environ | environment,
    )  # fmt: skip
    return float(run.stdout)
