"""What the page can have done on this host: training, attacking, resampling."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from veilmap.errors import PrivacyError, RunFolderError, VeilmapError
from veilmap.runs.command import NewTraining
from veilmap.runs.opened import label_of
from veilmap.web import schema, views
from veilmap.web.jobs import Job, Jobs, Preparation
from veilmap.web.library import Library, NoSuchRunError
from veilmap.web.served import Served

_REPLICAS = 5
_NOTHING_TO_STOP = "nothing to stop: this run does not go on, or was started elsewhere"
_FRESH = 60.0  # seconds: a history that changed since then belongs to a run that goes on


class Service:
    """Runs that are there, and work on them."""

    def __init__(self, library: Library, jobs: Jobs) -> None:
        self.library = library
        self.jobs = jobs
        self.preparing = Preparation()
        self.listeners = 0
        self._plans: dict[str, NewTraining] = {}
        self._paused: set[str] = set()
        self._starting = threading.Lock()

    # ---- looking

    def overview(self, version: str) -> schema.Overview:
        """Which runs there are, and what is being worked on."""
        there = self.library.runs()
        waiting = [run for run in self._plans if run not in there]
        return schema.Overview(
            version,
            list(self._summaries([*there, *waiting])),
            [job.answer() for job in self.jobs.all()],
            self.library.new_runs is not None,
        )

    def _summaries(self, runs: Iterable[str]) -> Iterator[schema.RunSummary]:
        for run in runs:
            with suppress(NoSuchRunError):  # deleted since they were listed
                yield self.summary(run)

    def summary(self, run: str) -> schema.RunSummary:
        """One run in a list; one that was started and has no folder yet is there too."""
        state, problem = self.state(run)
        try:
            return views.summary(run, self.library.open(run), state, problem)
        except NoSuchRunError:
            if run not in self._plans:
                raise
        plan, path = self._plans[run], self.library.path_of(run)
        chosen = plan.mechanism_checked()
        sees = "sums" if plan.sums or chosen.needs_sums else "uploads"
        return schema.RunSummary(
            id=run, name=path.name, label=label_of(chosen, sees), state=state,
            played=0, rounds=plan.rounds, mae_db=None, users=plan.source.users, problem=problem,
        )  # fmt: skip

    def state(self, run: str) -> tuple[schema.RunState, str | None]:
        """How a run stands, and why it failed."""
        path = self.library.path_of(run)
        if (path / "radio_map.nc").is_file():
            return "finished", None
        job = self.jobs.of_run(run, "train")
        if job is None:
            return ("running" if _changed_lately(path) else "stopped"), None
        if job.state == "stopped":
            return ("paused" if run in self._paused else "stopped"), None
        if job.state == "done":
            return "stopped", None  # its folder was emptied, or it goes on elsewhere
        return job.state, job.problem

    # ---- training

    def start(self, plan: NewTraining) -> schema.RunSummary:
        """Put a new run into the queue."""
        plan.mechanism_checked()
        with self._starting:  # or two of the same name would find the same folder free
            path = self.library.free_folder(plan.name)
            run = self.library.id_of(path)
            self._submit(run, path, plan)
            self._plans[run] = plan
        return self.summary(run)

    def pause(self, run: str) -> schema.RunSummary:
        """Interrupt a run after its last checkpoint; it can go on."""
        self.summary(run)  # refuses one that is not there
        job = self.jobs.of_run(run, "train")
        if job is None or not job.alive:
            raise RunFolderError(_NOTHING_TO_STOP)
        self._paused.add(run)
        self.jobs.stop(job)
        return self.summary(run)

    def stop(self, run: str) -> schema.RunSummary:
        """End a run; what it learned so far stays."""
        self.summary(run)
        self._paused.discard(run)
        job = self.jobs.of_run(run, "train")
        if job is None or job.state == "failed":
            raise RunFolderError(_NOTHING_TO_STOP)
        self.jobs.stop(job)  # nothing where it has ended
        return self.summary(run)

    def resume(self, run: str) -> schema.RunSummary:
        """Let an interrupted run go on."""
        state = self.summary(run).state
        if state not in ("paused", "stopped"):
            raise RunFolderError(f"the run is {state}: only an interrupted one can go on")
        if run not in self._plans:
            raise RunFolderError(
                "this run was not started here: go on with it by the same command and --resume"
            )
        self._paused.discard(run)
        self._submit(run, self.library.path_of(run), self._plans[run])
        return self.summary(run)

    def _submit(self, run: str, path: Path, plan: NewTraining) -> None:
        again = ["--resume"] if (path / "config.json").is_file() else []
        self.jobs.submit("train", run, [*plan.arguments(path), *again], lambda: self._played(run))

    def _played(self, run: str) -> float | None:
        try:
            opened = self.library.open_run(run)
            return len(opened.history()) / opened.rounds
        except VeilmapError:
            return None

    # ---- attacking

    def audit(self, run: str) -> Job:
        """Attack a run in every way we know."""
        opened = self._readable(run)
        if opened.why_no_audit:
            raise RunFolderError(opened.why_no_audit)
        out = opened.work / "audit"
        return self._once("audit", run, ["audit", str(opened.path), "--out", str(out)])

    def replicas(self, run: str) -> Job:
        """Train maps of resampled users."""
        self._readable(run)
        opened = self.library.open_run(run)
        if opened.withheld:
            raise PrivacyError(opened.withheld)
        if opened.data is None or not opened.finished:
            raise RunFolderError("replicas need a finished run whose measurements are on this host")
        folder = opened.work / "replicas"
        x, y, z = opened.stations[0][0].tolist() if len(opened.stations[0]) else (0.0, 0.0, 10.0)
        arguments = [
            "export", str(opened.path), str(opened.work / "uncertainty.nc"),
            "--layer", "uncertainty", f"--bs={x},{y},{z}",
            "--bootstrap", str(_REPLICAS), "--replicas", str(folder),
        ]  # fmt: skip
        return self._once(
            "replicas", run, arguments, lambda: len(opened.replica_files()) / _REPLICAS
        )

    def _readable(self, run: str) -> Served:
        head = self.summary(run)
        if head.state == "unreadable":
            raise RunFolderError(head.problem or "this run cannot be read")
        return self.library.open(run)

    def _once(
        self,
        kind: schema.JobKind,
        run: str,
        arguments: Sequence[str],
        share: Callable[[], float | None] | None = None,
    ) -> Job:
        """The job that does this already, or a new one."""
        job = self.jobs.of_run(run, kind)
        if job is not None and job.alive:
            return job
        return self.jobs.submit(kind, run, arguments, share)

    def tradeoff(self) -> schema.Tradeoff:
        """Map error against the strongest attack, for all runs that were audited."""
        points, missing = [], []
        for head in self._summaries(self.library.runs()):
            if head.state == "unreadable":
                continue
            with suppress(NoSuchRunError):
                opened = self.library.open(head.id)
                point = opened.point(head.id)
                if point is not None:
                    points.append(point)
                elif head.state == "finished":
                    missing.append(schema.MissingAudit(head.id, head.label, opened.why_no_audit))
        return schema.Tradeoff(points, missing)


def _changed_lately(path: Path) -> bool:
    try:
        return time.time() - (path / "history.csv").stat().st_mtime < _FRESH
    except OSError:
        return False
