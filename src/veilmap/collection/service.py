"""An aggregator over HTTP: requests in, answers out; what they mean is in `aggregator`.

Uploads wait for one another: those that came while a transaction was under way share the next one,
and are answered once it is durable.
"""

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from veilmap.collection import keys
from veilmap.collection import report as reports
from veilmap.collection.aggregator import Aggregator, Helper, Leader, Peer, most_job_bytes
from veilmap.collection.connection import asked, line_of, object_in
from veilmap.collection.metrics import Metrics
from veilmap.collection.report import Half, Refusal
from veilmap.collection.store import StorageError
from veilmap.errors import DataError
from veilmap.web.files import page_file, policy, sealed

_BODY_SECONDS = 20.0  # for all of a body, and more for a long one
_SLOWEST = 16_000  # bytes a second
_MEMORY = 256_000_000  # bytes of uploads that are under way
_BATCH_BYTES = 16_000_000  # of uploads in one transaction
_SHORT_BODY = 20_000  # bytes of requests that are no reports, and of the helper's answers
_HELPER_REFUSES = 502
_ANSWER_WITHIN = 20.0  # seconds; who waits for an opening asks again
_IDLE = 0.25  # seconds between looks for reports to pair
_LONGEST_PAUSE = 30.0  # seconds, while the helper does not answer
_TELL_EVERY = 60.0  # seconds: the helper that nothing is left, and expiry

log = logging.getLogger("veilmap.collection")


def event(what: str, *, level: int = logging.INFO, **facts: Any) -> None:
    """A line of the log; nothing of a participant may be among its facts."""
    log.log(level, what, extra={"facts": facts})


class HttpPeer:
    """The helper, over HTTP."""

    def __init__(self, leader: Leader, client: httpx.Client) -> None:
        self._leader = leader
        self._client = client

    def job(self, content: bytes) -> bytes:
        """What the helper answers to a job."""
        return self._post("aggregation_jobs", content).content

    def close(self) -> int:
        """Have the helper take no more reports; how many have no other half."""
        unpaired = self._told(self._post("closing", b""), "unpaired")
        if not isinstance(unpaired, int):
            raise httpx.RemoteProtocolError("the helper does not say how many have no other half")
        return unpaired

    def opening(self, statement: bytes, signature: str) -> str:
        """Have the helper open its share; its signature under the statement."""
        body = json.dumps({"statement": statement.decode(), "signature": signature}).encode()
        return str(self._told(self._post("opening", body), "signature"))

    def _post(self, what: str, body: bytes) -> httpx.Response:
        task = self._leader.task
        url = f"{task.helper}/tasks/{task.digest}/{what}"
        headers = self._leader.key.headers("POST", url, body)
        answer = asked(self._client, "POST", url, content=body, headers=headers, most=_SHORT_BODY)
        if answer.is_success:
            return answer
        reason = str(self._told(answer, "reason"))[:20]
        raise Refusal(reason, f"the helper refuses: {line_of(answer)}", _HELPER_REFUSES)

    @staticmethod
    def _told(answer: httpx.Response, name: str) -> Any:
        """A field of the helper's answer, or None."""
        try:
            return object_in(answer, "the helper").get(name)
        except DataError:
            raise httpx.RemoteProtocolError(
                f"the helper answers {answer.status_code} with nothing that can be read"
            ) from None


class Uploads:
    """Halves on their way into the database, some in a transaction, in bounded memory."""

    def __init__(self, aggregator: Aggregator) -> None:
        self._aggregator = aggregator
        self._free = _MEMORY
        self._waiting: asyncio.Queue[tuple[Half, asyncio.Future[Refusal | None]]] = asyncio.Queue()
        size = reports.half_bytes(aggregator.task, aggregator.role)
        self._most = max(1, _BATCH_BYTES // size)

    async def take(self, half: Half) -> None:
        """Return once the half is stored for good."""
        done: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((half, done))
        refusal = await done
        if refusal is not None:
            raise refusal

    @contextmanager
    def room(self) -> Iterator[Callable[[int], None]]:
        """What asks for memory as a body arrives; it is given back at the block's end."""
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            if size > self._free:
                raise Refusal("busy", "many reports come at once: send it again in a minute", 503)
            self._free -= size
            taken += size

        try:
            yield take
        finally:
            self._free += taken

    async def run(self) -> None:
        """Store what comes, for ever."""
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < self._most and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            try:
                found = await asyncio.to_thread(self._aggregator.take, [half for half, _ in batch])
            except Exception as problem:  # answered one by one, not lost
                for _, done in batch:
                    if not done.done():
                        done.set_exception(problem)
                continue
            for (_, done), refusal in zip(batch, found, strict=True):
                if not done.done():
                    done.set_result(refusal)


class Pairing:
    """The leader's thread that offers reports to the helper."""

    def __init__(self, leader: Leader, helper: Peer, metrics: Metrics) -> None:
        self._leader, self._helper, self._metrics = leader, helper, metrics
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pairing", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the job that is under way."""
        self._ended.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        pause, told = _IDLE, 0.0
        while not self._ended.wait(pause):
            try:
                if self._leader.standing().state in ("agreed", "opened"):
                    return
                began = time.monotonic()
                idle = began - told > _TELL_EVERY
                offered = self._leader.pair(self._helper, empty=idle)
                told = began if idle else told
                self._metrics.jobs.inc(bool(offered))
                if pause > _IDLE:
                    event("the helper answers again")
                pause = 0.0 if offered else _IDLE
            except Exception as problem:  # whatever it is, the next try may succeed
                if pause <= _IDLE:
                    expected = isinstance(problem, httpx.HTTPError | Refusal | StorageError)
                    why = str(problem) if expected else type(problem).__name__
                    event("pairing waits", level=logging.WARNING, why=why)
                self._metrics.problems.labels("pairing").inc()
                pause = min(max(2 * pause, 1.0), _LONGEST_PAUSE)


@dataclass
class Service:
    """One aggregator, what reaches it, and what it reaches."""

    aggregator: Aggregator
    metrics: Metrics
    metrics_token: str
    helper: Peer | None = None  # the leader has one

    def __post_init__(self) -> None:
        self.uploads: Uploads | None = None
        self._opening: asyncio.Future[dict[str, str]] | None = None

    @property
    def leader(self) -> Leader:
        """The aggregator as the leader; a helper refuses."""
        if not isinstance(self.aggregator, Leader):
            raise Refusal("not here", "ask the leader for this", 404)
        return self.aggregator

    @property
    def as_helper(self) -> Helper:
        """The aggregator as the helper; the leader refuses."""
        if not isinstance(self.aggregator, Helper):
            raise Refusal("not here", "ask the helper for this", 404)
        return self.aggregator

    async def opened(self, early: bool) -> dict[str, str] | None:
        """The certificate of the opening, or None while it takes longer."""
        assert self.helper is not None
        if self._opening is None:
            work = partial(self.leader.open, self.helper, early=early)
            self._opening = asyncio.ensure_future(asyncio.to_thread(work))
        opening = self._opening
        done, _ = await asyncio.wait({opening}, timeout=_ANSWER_WITHIN)
        if not done:
            return None
        self._opening = None
        return opening.result()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything that goes on beside requests."""
        self.uploads = Uploads(self.aggregator)
        tasks = [asyncio.create_task(self.uploads.run()), asyncio.create_task(self._keep_house())]
        pairing = None
        if isinstance(self.aggregator, Leader) and self.helper is not None:
            pairing = Pairing(self.aggregator, self.helper, self.metrics)
            pairing.start()
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            if pairing is not None:
                await asyncio.to_thread(pairing.stop)
            self.aggregator.store.close()

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(_TELL_EVERY)
            try:
                expired = await asyncio.to_thread(self.aggregator.expire)
            except Exception as problem:  # tried again in a while
                event("expiry failed", level=logging.WARNING, why=type(problem).__name__)
                continue
            if expired:
                self.metrics.expired.inc(expired)
                event("halves without partner were deleted", reports=expired)


_public = APIRouter()
_between = APIRouter()


def create_app(service: Service) -> FastAPI:
    """The application of an aggregator."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    nowhere: dict[str, Any] = {"docs_url": None, "redoc_url": None, "openapi_url": None}
    app = FastAPI(title="veilmap aggregator", lifespan=lifespan, **nowhere)
    app.state.service = service
    app.include_router(_public)
    app.include_router(_between)
    _refuse_in_one_line(app, service)
    task = service.aggregator.task
    if service.aggregator.role == "leader":
        app.include_router(_page)
    else:
        # The page of the leader sends the helper's halves.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=[task.leader],
            allow_methods=["GET", "POST"],
            allow_headers=["content-type"],
        )
    app.add_middleware(sealed(policy(connect=task.helper)))
    return app


def _refuse_in_one_line(app: FastAPI, service: Service) -> None:
    @app.exception_handler(Refusal)
    def _refused(request: Request, refusal: Refusal) -> JSONResponse:
        reason = "helper" if refusal.status == _HELPER_REFUSES else refusal.reason
        service.metrics.refused.labels(reason).inc()
        return _answer(refusal.status, refusal.reason, refusal.line)

    @app.exception_handler(StorageError)
    def _not_stored(request: Request, problem: StorageError) -> JSONResponse:
        service.metrics.problems.labels("storage").inc()
        event("storage failed", level=logging.ERROR, why=str(problem))
        line = "nothing was stored: the aggregator's database cannot be written now; try again"
        return _answer(503, "storage", line, {"retry-after": "5"})

    @app.exception_handler(httpx.HTTPError)
    def _no_helper(request: Request, problem: httpx.HTTPError) -> JSONResponse:
        event("the helper does not answer", level=logging.WARNING, why=str(problem))
        return _answer(502, "helper", "the helper does not answer; try again later")

    @app.exception_handler(HTTPException)
    def _elsewhere(request: Request, problem: HTTPException) -> JSONResponse:
        return _answer(problem.status_code, "not here", str(problem.detail), problem.headers)

    @app.exception_handler(Exception)
    def _fault(request: Request, problem: Exception) -> JSONResponse:
        service.metrics.problems.labels("fault").inc()
        event("fault", level=logging.ERROR, why=type(problem).__name__)
        return _answer(500, "fault", "the aggregator made a mistake here; its log says more")


def _answer(status: int, reason: str, line: str, headers: Any = None) -> JSONResponse:
    content = {"reason": reason, "error": " ".join(line.splitlines())}
    return JSONResponse(content, status, headers)


def _service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


def _of_task(request: Request, digest: str) -> Service:
    """The service, if the task is its own."""
    service = _service(request)
    own = service.aggregator.task.digest
    if digest != own:
        raise Refusal(
            "wrong task",
            f"this aggregator serves task {own[:16]}, not {digest[:16]}: take part in the survey"
            " that you were invited to",
            404,
        )
    return service


async def _body(
    request: Request, most: int, take: Callable[[int], None] = lambda size: None
) -> bytes:
    """A body of at most so many bytes, in bounded time; ``take`` is asked for their memory."""
    if "transfer-encoding" in request.headers:
        raise Refusal("malformed", "send the body with its length", 411)
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()) or len(length) > 12 or int(length) > most:
        raise Refusal("malformed", f"the body may have {most} bytes here, not {length[:20]}", 413)
    try:
        async with asyncio.timeout(_BODY_SECONDS + most / _SLOWEST):
            parts = []
            async for part in request.stream():
                take(len(part))
                parts.append(part)
            content = b"".join(parts)
    except TimeoutError:
        raise Refusal("slow", "the body did not come in time", 408) from None
    except ClientDisconnect:
        raise Refusal("slow", "the connection ended before the body did", 408) from None
    if len(content) > most:
        raise Refusal("malformed", f"the body may have {most} bytes here", 413)
    return content


async def _mapping(request: Request) -> dict[str, Any]:
    """A body that is a JSON object."""
    return _parsed(await _body(request, _SHORT_BODY))


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise Refusal("malformed", "the body is no JSON object")
    return content


def _check_signed(request: Request, service: Service, key: str, body: bytes) -> None:
    own = service.aggregator
    url = own.task.address(own.role) + request.url.path
    keys.check_request(key, request.method, url, body, request.headers, own.clock())


@_public.get("/health")
async def _health(request: Request) -> dict[str, str]:
    service = _service(request)
    standing = await asyncio.to_thread(service.aggregator.standing)
    return {"status": "ok", "role": service.aggregator.role, "state": standing.state}


@_public.get("/task")
async def _task(request: Request) -> Response:
    task = _service(request).aggregator.task
    return Response(task.content, media_type="application/json")


@_public.get("/metrics")
async def _metrics(request: Request) -> Response:
    service = _service(request)
    if not service.metrics.may_read(
        request.headers.get("authorization", ""), service.metrics_token
    ):
        raise Refusal("not signed", "the metrics need the token of metrics.token", 401)
    standing = await asyncio.to_thread(service.aggregator.standing)
    store = service.aggregator.store
    unpaired = await asyncio.to_thread(store.unpaired)
    rejected = await asyncio.to_thread(store.rejected)
    text = service.metrics.text(standing, unpaired, rejected)
    return Response(text, media_type="text/plain; version=0.0.4")


@_public.post("/tasks/{digest}/reports", status_code=201)
async def _report(request: Request, digest: str) -> dict[str, str]:
    service = _of_task(request, digest)
    aggregator = service.aggregator
    uploads = service.uploads
    assert uploads is not None
    with service.metrics.uploads.time(), uploads.room() as take:
        content = await _body(request, reports.half_bytes(aggregator.task, aggregator.role), take)
        half = aggregator.parsed(content)
        await uploads.take(half)
    service.metrics.taken.inc()
    return {"role": aggregator.role, "receipt": aggregator.receipt(half)}


@_public.get("/tasks/{digest}/reports")
async def _listed(request: Request, digest: str) -> Response:
    """The ids of all reports in the opened sum, in order, for participants to find theirs."""
    service = _of_task(request, digest)
    ids = await asyncio.to_thread(service.aggregator.store.opened_reports)
    return Response(ids, media_type="application/octet-stream")


@_public.post("/tasks/{digest}/tokens")
async def _token(request: Request, digest: str) -> dict[str, str]:
    service = _of_task(request, digest)
    content = await _mapping(request)
    code, blinded = content.get("code"), content.get("blinded")
    if not isinstance(code, str) or not isinstance(blinded, str):
        raise Refusal("malformed", "a token needs the invitation's code and the blinded token")
    try:
        message = bytes.fromhex(blinded)
    except ValueError:
        raise Refusal("malformed", "the blinded token is no hexadecimal number") from None
    signature = await asyncio.to_thread(service.leader.issued, code, message)
    service.metrics.tokens.inc()
    return {"signature": signature.hex()}


@_between.post("/tasks/{digest}/aggregation_jobs")
async def _job(request: Request, digest: str) -> Response:
    service = _of_task(request, digest)
    helper = service.as_helper
    body = await _body(request, most_job_bytes(helper.task))
    _check_signed(request, service, helper.task.leader_key, body)
    answer = await asyncio.to_thread(helper.answer, body)
    service.metrics.jobs.inc()
    return Response(answer, media_type="application/octet-stream")


@_between.post("/tasks/{digest}/closing")
async def _closing(request: Request, digest: str) -> dict[str, int]:
    service = _of_task(request, digest)
    helper = service.as_helper
    _check_signed(request, service, helper.task.leader_key, await _body(request, 0))
    return {"unpaired": await asyncio.to_thread(helper.store.stop_collecting)}


@_between.post("/tasks/{digest}/opening")
async def _opening(request: Request, digest: str) -> Response:
    """The collector asks the leader, and the leader the helper."""
    service = _of_task(request, digest)
    task = service.aggregator.task
    body = await _body(request, _SHORT_BODY)
    asks = task.collector_key if service.aggregator.role == "leader" else task.leader_key
    _check_signed(request, service, asks, body)
    content = _parsed(body)
    if service.aggregator.role == "helper":
        statement, signature = str(content.get("statement")), str(content.get("signature"))
        sign = partial(service.as_helper.open, statement.encode(errors="replace"), signature)
        signed = await asyncio.to_thread(sign)
        event("opened")
        return JSONResponse({"signature": signed})
    found = await service.opened(content.get("early") is True)
    if found is None:
        standing = await asyncio.to_thread(service.aggregator.standing)
        return JSONResponse({"state": standing.state, "added": standing.added}, 202)
    event("opened")
    return JSONResponse(found)


@_between.get("/tasks/{digest}/aggregate_share")
async def _aggregate_share(request: Request, digest: str) -> Response:
    service = _of_task(request, digest)
    _check_signed(request, service, service.aggregator.task.collector_key, b"")
    share = await asyncio.to_thread(service.aggregator.store.opened)
    if share is None:
        raise Refusal("collecting", "the sum was not opened", 409)
    return Response(share, media_type="application/octet-stream")


@_between.get("/tasks/{digest}/status")
async def _status(request: Request, digest: str) -> dict[str, Any]:
    service = _of_task(request, digest)
    _check_signed(request, service, service.aggregator.task.collector_key, b"")
    store = service.aggregator.store
    standing = await asyncio.to_thread(store.standing)
    about = {
        "state": standing.state,
        "received": standing.received,
        "added": standing.added,
        "unpaired": await asyncio.to_thread(store.unpaired),
        "rejected": await asyncio.to_thread(store.rejected),
        "time": time.time(),
    }
    there, used = await asyncio.to_thread(store.invited)
    return about | {"invitations": there, "invitations_used": used}


_page = APIRouter()


@_page.get("/")
async def _home() -> Response:
    return RedirectResponse("/take-part")


@_page.get("/take-part")
async def _take_part() -> Response:
    return page_file("take_part/index.html")


@_page.get("/page/{name:path}")
async def _page_file(name: str) -> Response:
    return page_file(name)
