"""How long a user waits before anything happens."""

import statistics
import tempfile

from suite._figure import Figure, in_a_fresh_process

_IMPORT = "import time; t = time.perf_counter(); import veilmap; print(time.perf_counter() - t)"
_FIRST_PASS = """
import time, numpy as np
from suite import growth
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
    return float(in_a_fresh_process(script, **environment))
