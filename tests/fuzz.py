"""Does any damaged file give a traceback, hang, or fill the memory? `make fuzz` tries many.

Inputs are mutations of small good files (`support/mutating.py`), for every reader of a file
(`support/file_parsers.py`), each decided by seed, parser and number. What ends in anything but a
`VeilmapError` of one line, takes five seconds or 1 GiB is kept in build/fuzz: make it a test.
Arguments select parsers whose name contains one of them:
``python tests/fuzz.py --minutes 1 parquet``.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "support"), str(HERE)]

from file_parsers import all_parsers  # noqa: E402
from fuzzing import fuzzed  # noqa: E402

_BATCH = 500
_CRASHERS = HERE.parent / "build" / "fuzz"


def _part(number, parts, *, minutes, seed, wanted):
    """Counts and problems of every so-many-th parser, in a process of its own."""
    until = time.monotonic() + 60 * minutes
    memory = Path("/dev/shm")
    results, problems = {}, []
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        parsers = all_parsers(Path(name))
        chosen = [one for one in parsers if any(word in one.name for word in wanted or [""])]
        first = 0
        while time.monotonic() < until:
            for parser in chosen[number::parts]:
                if time.monotonic() >= until:
                    break
                found, wrong = fuzzed(parser, seed, first, _BATCH, _CRASHERS)
                results.setdefault(parser.name, Counter()).update(found)
                problems += [f"{parser.name}: {outcome}" for outcome in wrong]
            first += _BATCH
    return results, problems


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("wanted", nargs="*")
    given = options.parse_args()
    _CRASHERS.mkdir(parents=True, exist_ok=True)
    work = partial(
        _part, parts=given.processes, minutes=given.minutes, seed=given.seed, wanted=given.wanted
    )
    problems, total = [], Counter()
    with ProcessPoolExecutor(given.processes) as pool:
        for part in [pool.submit(work, number) for number in range(given.processes)]:
            try:
                results, wrong = part.result()
            except BrokenProcessPool:
                problems.append("a process died: its last input is what it has left in its folder")
                continue
            problems += wrong
            for name, found in sorted(results.items()):
                total.update(found)
                print(f"{sum(found.values()):9,} {name:24} {dict(found)}")
    print(f"{sum(total.values()):9,} inputs: {dict(total)}")
    for problem in dict.fromkeys(problems):
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
