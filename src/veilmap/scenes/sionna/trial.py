"""Whether Sionna RT works on this machine, found out in a process of its own.

Sionna RT compiles its kernels with whatever LLVM it finds. With one that is too old LLVM does
not fail but ends the process, so a small scene is first traced where nothing is lost by that.
"""

import os
import re
import subprocess
import sys
from functools import cache

from veilmap._util.extras import require
from veilmap.errors import DataError

LEAST_LLVM = 17
_LIBRARY = "DRJIT_LIBLLVM_PATH"

# The first line tells which LLVM was found, even if the rest ends the process. Old ones survive
# an intersection with a ray; it takes diffraction to be sure.
_PROGRAM = """
import drjit.detail
import sionna.rt as rt
print("LLVM", *drjit.detail.llvm_version(), flush=True)
scene = rt.load_scene(rt.scene.floor_wall)
scene.tx_array = scene.rx_array = rt.PlanarArray(
    num_rows=1, num_cols=1, pattern="iso", polarization="V"
)
scene.add(rt.Transmitter("user", position=[1, 1, 2]))
scene.add(rt.Receiver("station", position=[2, 1, 2]))
paths = rt.PathSolver(deterministic=True)(scene, samples_per_src=1000, diffraction=True)
print("paths", paths.a[0].shape)
"""


def check() -> None:
    """One line that says what is missing, unless rays can be traced."""
    require("sionna", "ray tracing", "sionna")
    problem = _problem((sys.executable, "-c", _PROGRAM), os.environ.get(_LIBRARY))
    if problem:
        raise DataError(problem)


@cache
def _problem(command: tuple[str, ...], library: str | None) -> str:
    """What keeps the trial from ending well, or nothing; ``library`` is what it depends on."""
    trial = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if trial.returncode == 0:
        return ""
    found = re.search(r"^LLVM (\d+) (\d+) (\d+)", trial.stdout, re.MULTILINE)
    if found and int(found[1]) >= LEAST_LLVM:
        return (
            f"Sionna RT does not work here: a trial with LLVM {'.'.join(found.groups())} ended"
            f" with code {trial.returncode}: {_reason(trial.stderr)}"
        )
    if not found and "LLVM" not in trial.stderr:
        return f"Sionna RT does not work here: {_reason(trial.stderr)}"
    where = f"in {library} ({_LIBRARY})" if library else "on this machine"
    which = f"LLVM {'.'.join(found.groups())}" if found else "none that it can use"
    return (
        f"ray tracing needs LLVM {LEAST_LLVM} or newer, and Dr.Jit found {which} {where}:"
        f" install it (Debian: apt-get install libllvm19), or set {_LIBRARY} to its library"
    )


def _reason(output: str) -> str:
    """The last line of what a program complained about."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
