"""What the page can have done on this host: training, attacking, resampling."""

import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from veilmap.errors import PrivacyError, RunFolderError, VeilmapError
from veilmap.federation.study import unpublished
from veilmap.reports.audits import label_of
from veilmap.runs.command import NewTraining
from veilmap.web import schema, views
from veilmap.web.jobs import Job, Jobs, Preparation
from veilmap.web.library import Library, NoSuchRunError, ServedRun
from veilmap.web.schema import known

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
        sees = "sums" if plan.sums or plan.mechanism == "aggregate" else "uploads"
        return schema.RunSummary(
            id=run, name=path.name, label=label_of(plan.mechanism_checked(), sees), state=state,
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
            opened = self.library.open(run)
            return len(opened.history()) / opened.config.rounds
        except VeilmapError:
            return None

    # ---- attacking

    def audit(self, run: str) -> Job:
        """Attack a run in every way we know."""
        opened = self._readable(run)
        why_not = why_no_audit(opened)
        if why_not:
            raise RunFolderError(why_not)
        out = opened.work / "audit"
        return self._once("audit", run, ["audit", str(opened.path), "--out", str(out)])

    def replicas(self, run: str) -> Job:
        """Train maps of resampled users."""
        opened = self._readable(run)
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

    def _readable(self, run: str) -> ServedRun:
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
                point = _newest_point(opened, head.id, head.label)
                if point is not None:
                    points.append(point)
                elif head.state == "finished":
                    missing.append(schema.MissingAudit(head.id, head.label, why_no_audit(opened)))
        return schema.Tradeoff(points, missing)


def why_no_audit(run: ServedRun) -> str | None:
    """Why a run cannot be attacked; None where it can."""
    if not run.finished:
        return "the run is not finished"
    if not run.attackable_rounds():
        return views.NO_TRANSCRIPT
    if run.withheld:
        return run.withheld
    if run.data is None:
        return "the users' measurements, which say where they are, are not on this host"
    return None


def _newest_point(opened: ServedRun, run: str, label: str) -> schema.AuditedRun | None:
    """From an audit of the run as it is now, made for the page or beside the run."""
    if opened.withheld:
        return None
    for folder in (opened.work, unpublished(opened.path)):
        path = folder / "audit" / "audit.json"
        try:
            if path.stat().st_mtime_ns > opened.version[1]:
                point = _point(run, label, json.loads(path.read_text()))
                return replace(point, study=opened.study or None)
        except (OSError, ValueError, KeyError, TypeError, StopIteration):
            continue  # there is none, or somebody has changed it
    return None


def _point(run: str, label: str, audit: dict[str, Any]) -> schema.AuditedRun:
    best = audit["strongest"]
    scores = audit["scores"]
    own = next(s for s in scores if (s["attack"], s["when"]) == (best["attack"], best["when"]))
    prior = next(s for s in scores if s["attack"] == "prior only" and s["when"] == "all")
    when = "all kept rounds" if best["when"] == "all" else f"round {best['when']}"
    median = {name: _finite(own["median"][name]) for name in ("value", "low", "high")}
    return schema.AuditedRun(
        run, label, known(audit["map_mae_db"]), str(best["attack"]), when, median["value"],
        median["low"], median["high"], _finite(prior["median"]["value"]), str(audit["promise"]),
    )  # fmt: skip


def _finite(value: Any) -> float:
    """The number, unless it is none; whoever reads the file ignores it then."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is no distance")
    return float(value)


def _changed_lately(path: Path) -> bool:
    try:
        return time.time() - (path / "history.csv").stat().st_mtime < _FRESH
    except OSError:
        return False
