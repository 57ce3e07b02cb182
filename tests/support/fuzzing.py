"""Feeding mutated files to a parser, and what came of it."""

import resource
import signal
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from hashlib import sha256
from random import Random

from mutating import mutated
from veilmap.errors import VeilmapError

MOST_SECONDS = 5
MOST_MEMORY = 1 << 30  # of the process, with all that it has loaded


class Hangs(BaseException):
    """A parser took too long."""


@contextmanager
def limited():
    """What is in here is interrupted when it takes too long."""

    def stop(*_):
        raise Hangs

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def memory():
    """The most that this process has held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fed(parser, content):
    """What a parser makes of an input: "taken", "refused", or what is wrong with it."""
    # A link or a folder may have come into the file's place.
    parser.path.unlink(missing_ok=True)
    parser.path.write_bytes(content)
    held, began = memory(), time.perf_counter()
    try:
        with limited(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parser.read(parser.path)
        outcome = "taken"
    except VeilmapError as error:
        outcome = "refused" if "\n" not in str(error) else f"several lines: {str(error)[:200]!r}"
    except Hangs:
        return f"takes more than {MOST_SECONDS} s"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]} ({_place(error)})"
    if time.perf_counter() - began > MOST_SECONDS:
        return f"takes more than {MOST_SECONDS} s"
    if memory() > max(MOST_MEMORY, held):
        return f"takes {memory() >> 20} MiB"
    return outcome


def _place(error):
    """Where an error was raised, in our own code."""
    place, step = "?", error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if "/veilmap/" in code.co_filename:
            place = f"{code.co_filename.rpartition('/veilmap/')[2]}:{step.tb_lineno}"
        step = step.tb_next
    return place


def fuzzed(parser, seed, first, count, crashers=None):
    """Counts of outcomes of inputs ``first`` … of a seed; what is wrong is kept in a folder."""
    outcomes, problems = Counter(), {}
    for number in range(first, first + count):
        content = mutated(parser.corpus, Random(f"{seed} {parser.name} {number}"))
        outcome = fed(parser, content)
        if outcome in ("taken", "refused"):
            outcomes[outcome] += 1
            continue
        outcomes["wrong"] += 1
        if outcome not in problems:
            problems[outcome] = content
            if crashers is not None:
                name = f"{sha256(content).hexdigest()[:12]}-{parser.path.name}"
                (crashers / name).write_bytes(content)
    parser.path.write_bytes(parser.corpus[0])  # others may need it
    return outcomes, problems
