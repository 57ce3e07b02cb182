"""A run's progress as it happens: server-sent events that follow its folder.

Whoever trains the run, this server or a terminal, its history is written there.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict

from starlette.concurrency import run_in_threadpool

from veilmap.errors import VeilmapError
from veilmap.web import schema, views
from veilmap.web.service import Service

MOST_LISTENERS = 64

_LOOK_EVERY = 0.25  # seconds
_SPEAK_EVERY = 15.0  # a sign of life, so that a lost connection is noticed
_GOES_ON = ("running", "waiting", "paused")


def check_listeners(service: Service) -> None:
    """Refuse one too many: each holds a connection."""
    if service.listeners >= MOST_LISTENERS:
        raise VeilmapError(f"{MOST_LISTENERS} pages follow runs already: close some")


async def follow(service: Service, run: str) -> AsyncIterator[str]:
    """Events until the run has ended; rows are sent once."""
    sent, before, quiet = 0, None, 0.0
    service.listeners += 1
    try:
        while True:
            try:
                progress = await run_in_threadpool(_progress, service, run, sent)
            except VeilmapError as error:  # its folder is gone
                yield _event("end", schema.Progress("unreadable", 0, 0, str(error), []))
                return
            ended = progress.state not in _GOES_ON
            if ended or progress.rows or progress.state != before:
                yield _event("end" if ended else "progress", progress)
                quiet = 0.0
            if ended:
                return
            sent, before = sent + len(progress.rows), progress.state
            await asyncio.sleep(_LOOK_EVERY)
            quiet += _LOOK_EVERY
            if quiet >= _SPEAK_EVERY:
                yield ": still here\n\n"
                quiet = 0.0
    finally:
        service.listeners -= 1


def _progress(service: Service, run: str, sent: int) -> schema.Progress:
    head = service.summary(run)
    rows = service.library.open(run).history()[sent:] if head.played else []
    shown = views.history_rows(rows)
    return schema.Progress(head.state, head.played, head.rounds, head.problem, shown, head.study)


def _event(name: str, progress: schema.Progress) -> str:
    return f"event: {name}\ndata: {json.dumps(asdict(progress), allow_nan=False)}\n\n"
