"""Numba's compiler for the kernels, which are forgotten once they have outlived their sources.

Numba looks at a kernel's own file when it decides whether what it compiled before is still good.
What the kernel took over from other files may have changed as well, in an upgrade for example:
the old code would then run on without a word.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from numba import njit

__all__ = ["forget_stale", "njit"]


def forget_stale(folder: Path, sources: Iterable[Path]) -> None:
    """Remove what Numba has compiled to ``folder`` unless it was for these very sources."""
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    note, now = folder / "kernels.sha256", digest.hexdigest()
    # A folder that cannot be written to holds nothing of ours: Numba tries before it chooses one.
    with contextlib.suppress(OSError):
        if note.exists() and note.read_text() == now:
            return
        for compiled in folder.glob("*.nb[ic]"):
            compiled.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        fresh = note.with_suffix(f".{os.getpid()}")
        fresh.write_text(now)
        fresh.replace(note)


@njit(cache=True)
def _nothing():
    """A kernel that is never called: it knows where Numba keeps what it compiles."""


forget_stale(Path(_nothing.stats.cache_path), Path(__file__).parent.glob("*.py"))
