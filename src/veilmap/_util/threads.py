"""Kernels on several threads, and what processes started from here find set."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache

import numpy as np

from veilmap._util.arrays import Ints

# More parts than threads, so that a slow part does not leave the others waiting.
_PARTS_PER_THREAD = 4


def threads() -> int:
    """Threads to use: VEILMAP_THREADS, or one per core this process may run on."""
    asked = os.environ.get("VEILMAP_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=1)
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    # The process id is part of the key: after a fork the parent's threads are gone.
    return ThreadPoolExecutor(workers, thread_name_prefix="veilmap")


def run_parts(task: Callable[[int, int], object], bounds: Ints) -> None:
    """Call ``task(start, stop)`` for each pair of neighbouring ``bounds``, on all threads."""
    workers = threads()
    parts = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
    if workers == 1 or len(parts) == 1:
        for start, stop in parts:
            task(start, stop)
        return
    for future in [_pool(workers, os.getpid()).submit(task, *part) for part in parts]:
        future.result()


def run_all(tasks: Sequence[Callable[[], object]]) -> None:
    """Call all of them, on all threads."""
    run_parts(lambda start, stop: tasks[start](), np.arange(len(tasks) + 1))


def even_parts(count: int) -> Ints:
    """Bounds that split ``count`` equal items into parts."""
    parts = max(1, min(count, _PARTS_PER_THREAD * threads()))
    return np.linspace(0, count, parts + 1).astype(np.int64)


def even_groups(offsets: Ints) -> Ints:
    """Bounds over groups (group i owns offsets[i]:offsets[i+1]) with about equal content."""
    wanted = even_parts(int(offsets[-1]))
    bounds = np.searchsorted(offsets, wanted)
    bounds[0], bounds[-1] = 0, len(offsets) - 1
    return np.unique(bounds).astype(np.int64)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Processes started in here find these variables set."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in before.items() if value is not None})
