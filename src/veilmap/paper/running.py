"""Running tasks on all cores, each once; what is done is kept, so that work can be stopped."""

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from veilmap._util.threads import environment, threads
from veilmap.errors import ConfigurationError, DataError
from veilmap.paper.tasks import Outcome, Store, Task

# A worker computes on one thread: tasks share nothing, so processes use the cores better. It
# keeps its memory: glibc would give back each round's large arrays and fetch them anew, which
# costs a tenth of the time.
_WORKERS = dict.fromkeys(
    ("VEILMAP_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
) | {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**31)}


@dataclass(frozen=True)
class TaskPlan:
    """What is asked for, and what of it is already there."""

    done: dict[Task, Outcome]
    left: tuple[Task, ...]  # longest first, so that no worker ends up alone with a long one

    @classmethod
    def of(cls, tasks: Iterable[Task], store: Store) -> "TaskPlan":
        """Look up which tasks the store knows; equal tasks count once."""
        found = {task: store.load(task) for task in dict.fromkeys(tasks)}
        done = {task: outcome for task, outcome in found.items() if outcome is not None}
        left = [task for task in found if task not in done]
        return cls(done, tuple(sorted(left, key=lambda task: -task.weight)))


def processes(plan: TaskPlan, workers: int | None = None) -> int:
    """How many to use: as many as asked for, or one for each core, but no idle ones."""
    return max(1, min(workers or threads(), len(plan.left)))


def run(
    plan: TaskPlan,
    store: Store,
    *,
    workers: int | None = None,
    on_done: Callable[[Task], None] = lambda task: None,
) -> dict[Task, Outcome]:
    """Run what is left of a plan; all its outcomes.

    Stopping at any time (Ctrl-C, or the machine's end) loses only the tasks under way.
    """
    count = processes(plan, workers)
    finished = _here if count == 1 else _in_processes
    for task in finished(plan.left, store, count):
        on_done(task)
    return plan.done | {task: _stored(task, store) for task in plan.left}


def _here(tasks: Sequence[Task], store: Store, workers: int) -> Iterator[Task]:
    for task in tasks:
        _work(task, store)
        yield task


def _in_processes(tasks: Sequence[Task], store: Store, workers: int) -> Iterator[Task]:
    context = multiprocessing.get_context("spawn")  # numba and BLAS do not survive a fork
    with environment(_WORKERS):
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_ignore_interrupts)
        before = set(multiprocessing.active_children())
        futures = {pool.submit(_work, task, store): task for task in tasks}
        try:
            for future in as_completed(futures):
                future.result()
                yield futures[future]
        except BrokenProcessPool:
            raise ConfigurationError(
                "a worker process died (out of memory?); what is done is kept: run the same"
                " command again, with fewer workers",
                "workers",
            ) from None
        except BaseException:  # also Ctrl-C, and a caller who stops listening
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _work(task: Task, store: Store) -> None:
    """In a worker: the outcome goes to the store at once, so that nothing done is lost."""
    store.save(task, task.run())


def _stored(task: Task, store: Store) -> Outcome:
    outcome = store.load(task)
    if outcome is None:
        raise DataError(f"{store.folder} lost an outcome while this was running; run it again")
    return outcome


def _ignore_interrupts() -> None:
    # Ctrl-C reaches the whole group; the parent ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
