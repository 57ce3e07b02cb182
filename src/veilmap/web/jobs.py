"""Work beside the answers: commands as processes of their own, and attacks that are prepared.

Training beside the server would slow its answers down; a process can be stopped, and if it
dies the server does not.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

from veilmap.auditing.exposure import Witness
from veilmap.errors import VeilmapError
from veilmap.web import schema
from veilmap.web.schema import JobKind, JobState

_MOST_WAITING = 20
_PATIENCE = 10.0  # seconds until a process that was asked to stop is made to


@dataclass
class Job:
    """One command by its arguments; ``share`` says how much of it is done, from 0 to 1."""

    id: str
    kind: JobKind
    run: str
    arguments: Sequence[str]
    share: Callable[[], float | None] | None = None
    state: JobState = "waiting"
    problem: str | None = None
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def alive(self) -> bool:
        """Whether it waits or goes on."""
        return self.state in ("waiting", "running")

    def answer(self) -> schema.JobInfo:
        """For the page."""
        done = self.share() if self.share and self.state == "running" else None
        return schema.JobInfo(self.id, self.kind, self.run, self.state, done, self.problem)


class Jobs:
    """A queue of commands and the one that is being worked on.

    ``folder`` takes what they say when they fail.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jobs: list[Job] = []
        self._changed = threading.Condition()
        self._closed = False
        self._worker: threading.Thread | None = None

    def all(self) -> list[Job]:
        """Every job so far, oldest first."""
        with self._changed:
            return list(self._jobs)

    def of_run(self, run: str, kind: JobKind) -> Job | None:
        """The newest job of a kind for a run."""
        newest = reversed(self.all())
        return next((job for job in newest if (job.run, job.kind) == (run, kind)), None)

    def submit(
        self,
        kind: JobKind,
        run: str,
        arguments: Sequence[str],
        share: Callable[[], float | None] | None = None,
    ) -> Job:
        """Put a command at the end of the queue."""
        with self._changed:
            if sum(job.alive for job in self._jobs) >= _MOST_WAITING:
                raise VeilmapError(f"{_MOST_WAITING} jobs wait already: stop some, or wait")
            job = Job(f"job-{len(self._jobs) + 1}", kind, run, arguments, share)
            self._jobs.append(job)
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="jobs", daemon=True)
                self._worker.start()
            self._changed.notify_all()
        return job

    def stop(self, job: Job) -> None:
        """Take a job off the queue, or interrupt it as Ctrl-C would, and wait until it is gone."""
        with self._changed:
            if not job.alive:
                return
            waiting, job.state = job.state == "waiting", "stopped"
            process = job.process
        if not waiting and process is not None:
            _interrupt(process)

    def close(self) -> None:
        """Stop everything."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for job in self.all():
            self.stop(job)
        if self._worker is not None:
            self._worker.join(_PATIENCE)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._next() is not None)
                job = self._next()
                if self._closed or job is None:
                    return
                try:
                    log = (self._folder / f"{job.id}.log").open("w+b")
                    job.process, job.state = _started(job.arguments, log), "running"
                except OSError as error:
                    job.state, job.problem = "failed", f"it cannot be started: {error}"
                    continue
            with log:
                code = job.process.wait()
                with self._changed:
                    if job.state == "running":  # nobody stopped it
                        job.state = "done" if code == 0 else "failed"
                        job.problem = None if code == 0 else _last_line(log, code)

    def _next(self) -> Job | None:
        return next((job for job in self._jobs if job.state == "waiting"), None)


class Preparation:
    """Prepares what attacks need, one round at a time, so that answers do not wait for it."""

    def __init__(self) -> None:
        self._at_work: set[tuple[int, int]] = set()
        self._changing = threading.Lock()
        self._one_at_a_time = threading.Lock()

    def begin(self, witness: Witness, number: int) -> None:
        """Start to prepare a round, unless it is or is being."""
        key = (id(witness), number)
        with self._changing:
            if witness.prepared(number) or key in self._at_work:
                return
            self._at_work.add(key)
        threading.Thread(target=self._prepare, args=(witness, number, key), daemon=True).start()

    def _prepare(self, witness: Witness, number: int, key: tuple[int, int]) -> None:
        try:
            with self._one_at_a_time:
                witness.prepare(number)
        finally:
            with self._changing:
                self._at_work.discard(key)


def _started(arguments: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "veilmap.cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        start_new_session=True,  # Ctrl-C in the server's terminal is the server's to handle
    )


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    for ask in (partial(process.send_signal, signal.SIGINT), process.terminate, process.kill):
        ask()
        try:
            process.wait(_PATIENCE)
            return
        except subprocess.TimeoutExpired:
            continue


def _last_line(log: IO[bytes], code: int) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    said = lines[-1].removeprefix("veilmap: ") if lines else ""
    return said or f"it ended with exit code {code}"
