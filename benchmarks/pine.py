"""What proofs of bounded contributions cost: seconds, bytes, and reports a second.

python benchmarks/pine.py
python benchmarks/pine.py --entries 500,3000,20000 --clip 1024 --reports 200
PYTHONPATH=tests/support python benchmarks/pine.py --browser

Reports are made and verified in memory, without HTTP and database. A client makes a report on one
core; an aggregator verifies its own halves, so that leader and helper are timed by themselves.
These are seconds of the processor, which other programs hardly change; "reports/s" are by the
clock, of two processes at once, and "at most" what two cores do that are free. "Unverified" is the
same vector as random shares alone (`collection/shares.py`): the leader reads its elements, the
helper expands its seed, as they do before they add them up.
"""

import argparse
import math
import multiprocessing
import os
import statistics
import time
from pathlib import Path

import numpy as np

from veilmap.collection import shares
from veilmap.collection.pine import reports
from veilmap.collection.pine.choosing import chosen, errors
from veilmap.collection.pine.parameters import NormProofs

KEY, DIGEST = bytes(range(32)), bytes(range(100, 132))
HEARD = 200  # entries that are not 0
EPSILON = 2.0


def vector(parameters: NormProofs, number: int) -> np.ndarray:
    """Somebody's contribution: as long as it may be, and 0 at stations that were not heard."""
    rng = np.random.default_rng(number)
    own = np.zeros(parameters.dimension, dtype=np.int64)
    count = min(HEARD, parameters.dimension)
    direction = rng.normal(size=count)
    entries = np.trunc(direction / np.linalg.norm(direction) * parameters.bound)
    own[rng.choice(len(own), count, replace=False)] = entries
    return own


def made(
    parameters: NormProofs, count: int
) -> tuple[list[tuple[bytes, tuple[bytes, bytes]]], float]:
    """Reports of so many people, and the median of the seconds that one took."""
    found, seconds = [], []
    for number in range(count):
        own, report, secret = vector(parameters, number), os.urandom(16), os.urandom(32)
        began = time.process_time()
        halves = reports.prove(parameters, own, DIGEST, report, secret)
        seconds.append(time.process_time() - began)
        found.append((report, halves))
    return found, statistics.median(seconds)


def led(parameters: NormProofs, some: list) -> list[bytes]:
    """The leader's messages about reports."""
    return [
        reports.message(parameters, KEY, reports.nonce_of(DIGEST, report), halves[0])
        for report, halves in some
    ]


def judged(parameters: NormProofs, some: list, messages: list[bytes]) -> None:
    """What the helper makes of reports and messages."""
    for (report, halves), told in zip(some, messages, strict=True):
        reports.judged(parameters, KEY, reports.nonce_of(DIGEST, report), halves[1], told)


def unverified(dimension: int, count: int) -> tuple[float, float]:
    """Seconds a report of leader and helper without proofs."""
    seed, report = os.urandom(32), os.urandom(16)
    content = shares.to_bytes(shares.expanded(seed, DIGEST, report, dimension))
    times = []
    for work in (
        lambda: shares.from_bytes(content),
        lambda: shares.expanded(seed, DIGEST, report, dimension),
    ):
        began = time.process_time()
        for _ in range(count):
            work()
        times.append((time.process_time() - began) / count)
    return times[0], times[1]


def _worked(parameters: NormProofs, count: int) -> float:
    """Reports a second of one of several processes, by the clock."""
    some, _ = made(parameters, count)
    led(parameters, some[:3])
    began = time.perf_counter()
    led(parameters, some)
    return count / (time.perf_counter() - began)


def both_cores(parameters: NormProofs, count: int) -> float:
    """Reports a second of one aggregator with two processes."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        return sum(pool.starmap(_worked, 2 * [(parameters, count)], chunksize=1))


def row(dimension: int, clip: int, count: int) -> list[str]:
    parameters = chosen(dimension, clip)
    made(parameters, 3)
    some, client = made(parameters, count)
    judged(parameters, some[:3], led(parameters, some[:3]))
    began = time.process_time()
    messages = led(parameters, some)
    leader = (time.process_time() - began) / count
    began = time.process_time()
    judged(parameters, some, messages)
    helper = (time.process_time() - began) / count
    plain = unverified(dimension, count)
    sent = sum(len(half) for half in some[0][1])
    bare = 4 * dimension + 64
    promised = errors(parameters)
    return [
        f"{dimension:,}",
        f"{1000 * client:.1f}",
        f"{sent:,}", f"{bare:,}", f"{sent / bare:.2f}",
        f"{reports.message_bytes(parameters):,}",
        f"{1000 * leader:.2f}", f"{1000 * helper:.2f}",
        f"{1000 * plain[0]:.3f}", f"{1000 * plain[1]:.3f}",
        f"{both_cores(parameters, count):,.0f}", f"{2 / leader:,.0f}",
        f"{math.log2(promised.soundness):.1f}",
        f"{math.log2(promised.zero_knowledge):.1f}",
        f"{math.log2(promised.delta(EPSILON)):.1f}",
        f"{math.log2(promised.refusal):.1f}",
    ]  # fmt: skip


def browser_row(dimensions: list[int], clip: int) -> list[float]:
    """Seconds in which Chromium makes a report, the median of five."""
    import json
    import tempfile

    from aggregators import deployed
    from browsers import chromium
    from veilmap._util.plain import to_plain

    run = """async ({ proofs, vector }) => {
      const { proven } = await import("/page/take_part/proofs.js");
      const times = [];
      for (let number = 0; number < 5; number += 1) {
        const [digest, id, secret] = [32, 16, 32].map((size) => new Uint8Array(size).fill(number));
        const began = performance.now();
        await proven(proofs, Int32Array.from(vector), digest, id, secret);
        times.push((performance.now() - began) / 1000);
      }
      return times.sort((one, other) => one - other)[2];
    }"""
    found = []
    with (
        tempfile.TemporaryDirectory() as folder,
        deployed(Path(folder)) as both,
        chromium() as browser,
    ):
        page = browser.new_page()
        page.goto(f"{both.address('leader')}/health")
        for dimension in dimensions:
            parameters = chosen(dimension, clip)
            given = {
                "proofs": json.loads(json.dumps(to_plain(parameters))),
                "vector": vector(parameters, 0).tolist(),
            }
            found.append(page.evaluate(run, given))
    return found


HEADER = [
    "entries", "client ms", "bytes sent", "unverified", "ratio", "leader to helper",
    "leader ms", "helper ms", "unverified leader ms", "unverified helper ms",
    "reports/s, 2 cores", "at most",
    "log2 soundness", "log2 zero knowledge", f"log2 added delta (eps {EPSILON:g})", "log2 refusal",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--entries", default="500,3000,20000")
    parser.add_argument("--clip", type=int, default=1024)
    parser.add_argument("--reports", type=int, default=200)
    parser.add_argument("--browser", action="store_true", help="time the page's code in Chromium")
    given = parser.parse_args()
    dimensions = [int(one) for one in given.entries.split(",")]
    if given.browser:
        seconds = browser_row(dimensions, given.clip)
        print("Chromium, s".rjust(26), *(f"{one:.2f}".rjust(12) for one in seconds))
        return
    rows = [row(one, given.clip, given.reports) for one in dimensions]
    for name, *values in zip(HEADER, *rows, strict=True):
        print(name.rjust(26), *(value.rjust(12) for value in values))


if __name__ == "__main__":
    main()
