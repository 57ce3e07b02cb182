"""Numba's compiler for the kernels; the import that forgets kernels of older sources."""

from pathlib import Path

from numba import njit

from veilmap._kernels._freshness import forget_stale

__all__ = ["njit"]


@njit(cache=True)
def _nothing():
    """A kernel that is never called: it knows where Numba keeps what it compiles."""


forget_stale(Path(_nothing.stats.cache_path), Path(__file__).parent.glob("*.py"))
