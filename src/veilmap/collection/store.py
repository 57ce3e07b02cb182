"""What an aggregator keeps, in SQLite or PostgreSQL; every method is one transaction.

One process at a time serves a database, one transaction after the other. A report's row stays, so
that nothing is added twice; its share goes as soon as it was added. A sum is kept modulo q, and
goes when it is opened: its noisy version takes its place.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from veilmap._util import files
from veilmap._util.extras import require
from veilmap.collection import shares
from veilmap.collection.report import HASH_BYTES, ID_BYTES, Half, Refusal, elements_of
from veilmap.collection.task import Role, Task
from veilmap.errors import ConfigurationError, MissingExtraError

State = Literal["collecting", "closed", "agreed", "opened"]

PENDING, ADDED, REFUSED, UNPROVEN, UNLUCKY = range(5)
"""States of a report."""

PAIRED, WAITING, MISMATCHED, REPEATED, NOT_PROVEN, NOT_LUCKY = b"pwmrul"
"""What the helper says of a report: added by both; its half is not here (yet); the halves do not
belong together; it was in an earlier job; its proof does not convince; its proof must not be looked
at, by chance."""

STATES = {MISMATCHED: REFUSED, REPEATED: REFUSED, NOT_PROVEN: UNPROVEN, NOT_LUCKY: UNLUCKY}
"""What becomes of a report of which the helper says that it is not added."""

_REASONS = {REFUSED: "mismatch", UNPROVEN: "unproven", UNLUCKY: "unlucky"}

Read = Callable[[bytes, bytes], shares.Elements]
"""The elements of a report's share, by the report's id and the share as it is stored."""

Judged = Mapping[bytes, shares.Elements | int]
"""By report, the elements of a share whose proof convinced, or what the helper says instead."""

_LOCK = 0x7665696C  # in PostgreSQL, of the one process that serves a database
_CACHE_KIB = 8192
_PAGE_BYTES = 16_384  # of SQLite: shares are long

_tables = sa.MetaData()
_task = sa.Table(
    "task", _tables,
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("role", sa.String(6), nullable=False),
    sa.Column("state", sa.String(10), nullable=False),
    sa.Column("received", sa.Integer, nullable=False),  # reports that are or were here
    sa.Column("added", sa.Integer, nullable=False),
    sa.Column("swept", sa.Float, nullable=False),  # when all of the leader's reports were offered
    sa.Column("total", sa.LargeBinary),  # until the sum is opened
    sa.Column("statement", sa.LargeBinary),  # the ledger: which sum is opened
    sa.Column("signature", sa.String(128)),  # the other aggregator's under it
    sa.Column("opened", sa.LargeBinary),  # the sum of shares with noise
    sa.Column("verify_key", sa.LargeBinary),  # of proofs, as the leader told it first
)  # fmt: skip
_reports = sa.Table(
    "reports", _tables,
    sa.Column("id", sa.LargeBinary(16), primary_key=True),
    sa.Column("hashes", sa.LargeBinary(64), nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("arrived", sa.Float, nullable=False),  # seconds since 1970
    sa.Column("offered", sa.Float, nullable=False),  # to the helper, last; 0 for never
    sa.Index("reports_to_offer", "state", "offered"),
)  # fmt: skip
_shares = sa.Table(
    "shares", _tables,
    sa.Column("id", sa.LargeBinary(16), primary_key=True),
    sa.Column("share", sa.LargeBinary, nullable=False),
)  # fmt: skip
_jobs = sa.Table(
    "jobs", _tables,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("request", sa.LargeBinary, nullable=False),
    sa.Column("answer", sa.LargeBinary),
)  # fmt: skip
_invitations = sa.Table(
    "invitations", _tables,
    sa.Column("code", sa.LargeBinary(32), primary_key=True),  # its SHA-256
    sa.Column("blinded", sa.LargeBinary(32)),  # SHA-256 of the token that it was changed into
)  # fmt: skip


class StorageError(Exception):
    """The database does not answer or is full: nothing was stored, and nothing may be confirmed."""


@dataclass(frozen=True)
class Standing:
    """How a survey stands at an aggregator."""

    state: State
    received: int
    added: int
    statement: bytes | None
    signature: str | None


class Store:
    """The database of one aggregator for one task.

    ``url`` is as SQLAlchemy has it; ``serving`` keeps other servers off the same database.
    """

    def __init__(self, url: str, task: Task, role: Role, *, serving: bool = True) -> None:
        self._task = task
        self._lock = threading.RLock()
        self._held = ExitStack()
        self._engine = _engine(url, serving=serving)
        if self._engine.dialect.name == "sqlite" and self._engine.url.database:
            file = Path(self._engine.url.database)
            if serving:
                self._held.enter_context(files.locked(file.with_name(f"{file.name}.lock")))
            files.make_private(file)
        try:
            with self._transaction() as now:
                _tables.create_all(now)
                self._begin(now, role)
        except StorageError as error:
            self.close()
            raise ConfigurationError(f"the database cannot be used: {error}", "database") from None
        except ConfigurationError:
            self.close()
            raise

    def _begin(self, now: sa.Connection, role: Role) -> None:
        row = now.execute(sa.select(_task.c.digest, _task.c.role)).first()
        if row is None:
            nothing = bytes(shares.ELEMENT_BYTES * self._task.survey.numbers)
            first = {"digest": self._task.digest, "role": role, "state": "collecting"}
            counts = {"received": 0, "added": 0, "swept": 0.0, "total": nothing}
            now.execute(sa.insert(_task).values(**first, **counts))
        elif tuple(row) != (self._task.digest, role):
            raise ConfigurationError(
                f"the database belongs to the {row.role} of task {row.digest[:16]}: name another"
                " one for another survey or role",
                "database",
            )

    def close(self) -> None:
        """Let the database go."""
        self._engine.dispose()
        self._held.close()

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Several transactions with none of another thread's between them."""
        with self._lock:
            yield

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        """Everything or nothing; durable when the block has ended."""
        with self._lock:
            try:
                with self._engine.begin() as connection:
                    yield connection
            except SQLAlchemyError as error:
                raise StorageError(_why(error)) from error

    def standing(self) -> Standing:
        """How the survey stands."""
        columns = _task.c
        wanted = (
            columns.state, columns.received, columns.added, columns.statement, columns.signature,
        )  # fmt: skip
        with self._transaction() as now:
            return Standing(*now.execute(sa.select(*wanted)).one())

    def unpaired(self) -> int:
        """Reports whose other half has not come."""
        with self._transaction() as now:
            return _count(now, PENDING)

    # ---- reports

    def take(self, halves: Sequence[Half], moment: float) -> list[Refusal | None]:
        """Store halves of reports; what is not None was not stored, and why.

        A half that is here already is confirmed again, also after the survey's end.
        """
        with self._transaction() as now:
            row = now.execute(sa.select(_task.c.state, _task.c.received)).one()
            over = row.state != "collecting" or moment >= self._task.closes_at.timestamp()
            known = _hashes_of(now, [half.id for half in halves])
            fresh: dict[bytes, Half] = {}
            confirmed: list[bytes] = []
            answers: list[Refusal | None] = []
            for half in halves:
                if half.id in known:
                    answers.append(_again(known[half.id], half))
                    confirmed += [half.id] if answers[-1] is None else []
                elif over:
                    answers.append(_over())
                elif row.received + len(fresh) >= self._task.most_reports:
                    answers.append(_full(self._task))
                else:
                    fresh[half.id] = half
                    known[half.id] = half.hashes, PENDING
                    answers.append(None)
            if fresh:
                _insert(now, list(fresh.values()), moment)
                now.execute(sa.update(_task).values(received=_task.c.received + len(fresh)))
            if confirmed:
                # Its other half may just be on its way: this one is not to go before it.
                again = _reports.c.id.in_(confirmed) & (_reports.c.state == PENDING)
                now.execute(sa.update(_reports).where(again).values(arrived=moment))
            return answers

    def expire(self, before: float) -> int:
        """Delete halves that came before ``before`` and were of no use; how many.

        The leader's were offered to the helper in vain since; the helper's were not asked for by
        a leader that has offered all it had.
        """
        with self._transaction() as now:
            row = now.execute(sa.select(_task.c.state, _task.c.swept, _task.c.role)).one()
            if row.state != "collecting" or _unfinished(now) is not None:
                return 0
            old = (_reports.c.state == PENDING) & (_reports.c.arrived < before)
            if row.role == "leader":
                hours = self._task.pairing_hours * 3600
                old &= _reports.c.offered > _reports.c.arrived + hours
            else:
                old &= _reports.c.arrived < row.swept - self._task.pairing_hours * 3600
            ids = list(now.execute(sa.select(_reports.c.id).where(old).limit(1000)).scalars())
            now.execute(sa.delete(_shares).where(_shares.c.id.in_(ids)))
            now.execute(sa.delete(_reports).where(_reports.c.id.in_(ids)))
            now.execute(sa.update(_task).values(received=_task.c.received - len(ids)))
            return len(ids)

    # ---- aggregation jobs: the leader's side

    def next_job(
        self, most: int, offered_before: float, moment: float, *, empty: bool = False
    ) -> tuple[int, bytes, bool] | None:
        """The job that is not finished, or a new one of reports not offered lately.

        Its number, its entries, and whether it is new; ``empty`` asks for one also if there is
        nothing to offer.
        """
        with self._transaction() as now:
            begun = _unfinished(now)
            if begun is not None:
                return *begun, False
            to_offer = (_reports.c.state == PENDING) & (_reports.c.offered < offered_before)
            rows = now.execute(
                sa.select(_reports.c.id, _reports.c.hashes)
                .where(to_offer).order_by(_reports.c.offered).limit(most)
            ).all()  # fmt: skip
            if not rows and not empty:
                return None
            number = (now.execute(sa.select(sa.func.max(_jobs.c.number))).scalar() or 0) + 1
            request = b"".join(bytes(row.id) + bytes(row.hashes) for row in rows)
            # One answered job is enough to tell a repeated request from a new one.
            now.execute(sa.delete(_jobs))
            now.execute(sa.insert(_jobs).values(number=number, request=request))
            ids = [row.id for row in rows]
            now.execute(sa.update(_reports).where(_reports.c.id.in_(ids)).values(offered=moment))
            return number, request, True

    def forget_offers(self) -> None:
        """Count reports without their other half as not offered yet."""
        with self._transaction() as now:
            pending = sa.update(_reports).where(_reports.c.state == PENDING)
            now.execute(pending.values(offered=0.0))

    def finish_job(self, number: int, added: Sequence[bytes], refused: Mapping[bytes, int]) -> None:
        """What the helper has answered: add these reports' shares, and forget those.

        ``refused`` are the new states of those that are not added.
        """
        with self._transaction() as now:
            begun = _unfinished(now)
            if begun is None or begun[0] != number:
                return  # it was finished before
            self._add(now, added, lambda report, share: elements_of(self._task, share))
            self._refuse(now, dict(refused))
            done = sa.update(_jobs).where(_jobs.c.number == number)
            now.execute(done.values(answer=b""))

    # ---- the helper's side

    def answer_job(
        self, number: int, request: bytes, swept: float | None, judged: Judged | None = None
    ) -> bytes:
        """Add what a job names, once: a repeated request has the same answer.

        ``swept`` is when the leader had offered all it had, if it has. ``judged`` are reports whose
        proofs were looked at; in a survey with proofs no others are added.
        """
        with self._transaction() as now:
            last = now.execute(sa.select(_jobs)).first()
            if last is not None and number <= last.number:
                if (number, request) == (last.number, bytes(last.request)):
                    return bytes(last.answer)
                raise Refusal("job", f"job {number} was answered before, or another one was", 409)
            state = now.execute(sa.select(_task.c.state)).scalar_one()
            if state in ("agreed", "opened"):
                raise Refusal("opened", "the sum was opened: nothing can be added any more", 409)
            entries = entries_of(request)
            known = _hashes_of(now, [report for report, _ in entries])
            verdicts = [_verdict(known.get(report), hashes) for report, hashes in entries]
            ids = [report for report, _ in entries]
            read: Read = self._mask
            if judged is not None:
                verdicts = [
                    _proven(judged.get(report), one)
                    for report, one in zip(ids, verdicts, strict=True)
                ]
                elements = {id: one for id, one in judged.items() if not isinstance(one, int)}
                read = lambda report, share: elements[report]  # noqa: E731
            found = list(zip(ids, verdicts, strict=True))
            self._add(now, [report for report, one in found if one == PAIRED], read)
            self._refuse(now, {id: STATES[one] for id, one in found if one in STATES})
            answer = bytes(verdicts)
            now.execute(sa.delete(_jobs))
            now.execute(sa.insert(_jobs).values(number=number, request=request, answer=answer))
            if swept is not None:
                now.execute(sa.update(_task).values(swept=swept))
            return answer

    def _add(self, now: sa.Connection, ids: Sequence[bytes], read: Read) -> None:
        """Add shares to the sum, and delete them."""
        if not ids:
            return
        total = shares.from_bytes(now.execute(sa.select(_task.c.total)).scalar_one())
        found = now.execute(sa.select(_shares).where(_shares.c.id.in_(ids))).all()
        assert len(found) == len(ids), "a report without its share"
        total = shares.added(total, *(read(bytes(row.id), bytes(row.share)) for row in found))
        now.execute(sa.delete(_shares).where(_shares.c.id.in_(ids)))
        pending = _reports.c.id.in_(ids) & (_reports.c.state == PENDING)
        changed = now.execute(sa.update(_reports).where(pending).values(state=ADDED))
        assert changed.rowcount == len(found), "a report that was added before"
        count = _task.c.added + len(found)
        now.execute(sa.update(_task).values(total=shares.to_bytes(total), added=count))

    def _mask(self, report: bytes, seed: bytes) -> shares.Elements:
        """The helper's share of a report."""
        return shares.expanded(seed, self._task.digest_bytes, report, self._task.survey.numbers)

    def _refuse(self, now: sa.Connection, states: Mapping[bytes, int]) -> None:
        """Delete shares, and note what became of the reports."""
        for state in set(states.values()):
            ids = [report for report, own in states.items() if own == state]
            pending = _reports.c.id.in_(ids) & (_reports.c.state == PENDING)
            there = list(now.execute(sa.select(_reports.c.id).where(pending)).scalars())
            now.execute(sa.delete(_shares).where(_shares.c.id.in_(there)))
            now.execute(sa.update(_reports).where(pending).values(state=state))

    # ---- proofs

    def keep_to(self, key: bytes) -> None:
        """Note the key of proofs that the leader tells; refuse another one from then on."""
        with self._transaction() as now:
            known = now.execute(sa.select(_task.c.verify_key)).scalar_one()
            if known is None:
                now.execute(sa.update(_task).values(verify_key=key))
            elif bytes(known) != key:
                raise Refusal("job", "proofs are verified with another key since they began", 409)

    def waiting_shares(self, entries: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
        """The shares of those reports that are here, with the same hashes, and were not judged."""
        hashes = dict(entries)
        both = _shares.join(_reports, _shares.c.id == _reports.c.id)
        columns = sa.select(_shares.c.id, _reports.c.hashes, _shares.c.share).select_from(both)
        mine = (_reports.c.state == PENDING) & _reports.c.id.in_(list(hashes))
        with self._transaction() as now:
            rows = now.execute(columns.where(mine)).all()
            return {
                bytes(row.id): bytes(row.share)
                for row in rows
                if bytes(row.hashes) == hashes[bytes(row.id)]
            }

    def rejected(self) -> dict[str, int]:
        """How many reports were not added, by reason."""
        with self._transaction() as now:
            return {reason: _count(now, state) for state, reason in _REASONS.items()}

    # ---- opening

    def stop_collecting(self) -> int:
        """Take no more reports, ever; how many are without their other half."""
        with self._transaction() as now:
            collecting = sa.update(_task).where(_task.c.state == "collecting")
            now.execute(collecting.values(state="closed"))
            return _count(now, PENDING)

    def reports(self) -> tuple[int, str]:
        """How many reports are in the sum, and SHA-256 of their ids in order."""
        with self._transaction() as now:
            added = sa.select(_reports.c.id).where(_reports.c.state == ADDED)
            running, count = hashlib.sha256(), 0
            rows = now.execution_options(stream_results=True).execute(added.order_by(_reports.c.id))
            for one in rows.scalars():
                running.update(one)
                count += 1
            return count, running.hexdigest()

    def agree(self, statement: bytes) -> None:
        """Write into the ledger which sum is opened; another one is refused from then on."""
        with self._transaction() as now:
            self._agree(now, statement)

    def _agree(self, now: sa.Connection, statement: bytes) -> None:
        row = now.execute(sa.select(_task.c.state, _task.c.statement)).one()
        if row.statement is not None and bytes(row.statement) != statement:
            raise already_opened()
        if row.state == "collecting":
            raise Refusal("collecting", "reports are still taken: close the survey first", 409)
        if row.state == "closed":
            now.execute(sa.update(_task).values(state="agreed", statement=statement))

    def open(
        self, statement: bytes, signature: str, noised: Callable[[shares.Elements], shares.Elements]
    ) -> None:
        """Put the noisy sum in place of the sum; once, and whatever comes after it stays."""
        with self._transaction() as now:
            self._agree(now, statement)
            row = now.execute(sa.select(_task.c.state, _task.c.total)).one()
            if row.state == "opened":
                return
            opened = shares.to_bytes(noised(shares.from_bytes(row.total)))
            now.execute(sa.delete(_shares))
            new = {"state": "opened", "signature": signature, "opened": opened, "total": None}
            now.execute(sa.update(_task).values(**new))
        self._empty_log()

    def _empty_log(self) -> None:
        """Leave nothing of shares and sum in SQLite's write-ahead log."""
        if self._engine.dialect.name != "sqlite":
            return
        with self._lock, closing(self._engine.raw_connection()) as connection:
            connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def opened(self) -> bytes | None:
        """The sum of shares with noise, if it was opened."""
        with self._transaction() as now:
            found = now.execute(sa.select(_task.c.opened)).scalar_one()
            return None if found is None else bytes(found)

    def opened_reports(self) -> bytes:
        """The ids of the reports in the opened sum, in order."""
        with self._transaction() as now:
            if now.execute(sa.select(_task.c.state)).scalar_one() != "opened":
                raise Refusal("collecting", "the sum was not opened yet: ask again then", 409)
            added = sa.select(_reports.c.id).where(_reports.c.state == ADDED)
            return b"".join(map(bytes, now.execute(added.order_by(_reports.c.id)).scalars()))

    # ---- invitations

    def invite(self, codes: Sequence[str]) -> None:
        """Make codes good for one token each."""
        rows = [{"code": _code(code)} for code in codes]
        with self._transaction() as now:
            now.execute(sa.insert(_invitations), rows)

    def invited(self) -> tuple[int, int]:
        """How many invitations there are, and how many were used."""
        columns = sa.func.count(_invitations.c.code), sa.func.count(_invitations.c.blinded)
        with self._transaction() as now:
            there, used = now.execute(sa.select(*columns)).one()
            return int(there), int(used)

    def use_invitation(self, code: str, blinded: bytes) -> None:
        """Note that a code was changed into a token; the same one may be asked for again."""
        digest = hashlib.sha256(blinded).digest()
        mine = _invitations.c.code == _code(code)
        with self._transaction() as now:
            row = now.execute(sa.select(_invitations.c.blinded).where(mine)).first()
            if row is None:
                raise Refusal(
                    "no invitation", "this invitation is none of this survey's: check the code", 403
                )
            if row.blinded is not None and bytes(row.blinded) != digest:
                raise Refusal(
                    "invitation used",
                    "this invitation was used already; who invited you can give you another one",
                    409,
                )
            now.execute(sa.update(_invitations).where(mine).values(blinded=digest))


def entries_of(request: bytes) -> list[tuple[bytes, bytes]]:
    """The reports of a job: (id, hashes) of each, and each once."""
    size = ID_BYTES + 2 * HASH_BYTES
    parts = [request[at : at + size] for at in range(0, len(request), size)]
    entries = [(part[:ID_BYTES], part[ID_BYTES:]) for part in parts]
    if len(request) % size or len({report for report, _ in entries}) < len(entries):
        raise Refusal("malformed", "the job is no list of different reports")
    return entries


def already_opened() -> Refusal:
    """What a second opening is answered with."""
    return Refusal(
        "opened",
        "this survey was opened already, with another list of reports; a second opening would cost"
        " its participants' ε twice",
        409,
    )


def _proven(judged: shares.Elements | int | None, verdict: int) -> int:
    """What is said of a report that has a verdict already, by what its proof says."""
    if verdict != PAIRED:
        return verdict
    if judged is None:
        return WAITING  # it came after proofs were looked at
    return judged if isinstance(judged, int) else PAIRED


def _verdict(known: tuple[bytes, int] | None, hashes: bytes) -> int:
    if known is None:
        return WAITING
    if known == (hashes, PENDING):
        return PAIRED
    judged = {ADDED: REPEATED, UNPROVEN: NOT_PROVEN, UNLUCKY: NOT_LUCKY}
    return judged.get(known[1], MISMATCHED) if known[0] == hashes else MISMATCHED


def _engine(url: str, *, serving: bool) -> sa.Engine:
    """The database at an address, set up to be durable."""
    try:
        parsed = sa.make_url(url)
        if parsed.get_backend_name() == "postgresql":
            require("psycopg", "a PostgreSQL database", "postgres")
            parsed = parsed.set(drivername="postgresql+psycopg")
            # One connection, which holds the lock as long as it lives; a new one takes it anew.
            only = {"pool_size": 1, "max_overflow": 0, "pool_pre_ping": True}
            engine = sa.create_engine(parsed, hide_parameters=True, **only)
            if serving:
                sa.event.listen(engine, "connect", _lock_database)
            return engine
        if parsed.get_backend_name() != "sqlite":
            raise ConfigurationError(
                f"database must be sqlite:///FILE or postgresql://…, not {parsed.drivername}",
                "database",
            )
    except MissingExtraError:
        raise
    except (SQLAlchemyError, ValueError) as error:
        raise ConfigurationError(f"database {url!r} is no address: {error}", "database") from None
    engine = sa.create_engine(parsed, hide_parameters=True, connect_args={"timeout": 30})

    @sa.event.listens_for(engine, "connect")
    def _set_up(connection: Any, record: Any) -> None:
        # Python's driver begins transactions late; ours begin with BEGIN IMMEDIATE below.
        connection.isolation_level = None
        for pragma in (
            f"page_size={_PAGE_BYTES}", "journal_mode=WAL", "synchronous=FULL", "secure_delete=ON",
            f"cache_size=-{_CACHE_KIB}",
        ):  # fmt: skip
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _lock_database(connection: Any, record: Any) -> None:
    """Take PostgreSQL's lock for a new connection, or refuse to use it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])
        free = cursor.fetchone()[0]
    connection.commit()
    if not free:
        connection.close()
        raise StorageError("another aggregator serves this database")


def _why(error: SQLAlchemyError) -> str:
    """What the database says, without the values that were to be written."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    told = getattr(getattr(cause, "diag", None), "message_primary", None) or str(cause)
    return " ".join(told.split()) or type(error).__name__


def _count(now: sa.Connection, state: int) -> int:
    there = sa.select(sa.func.count()).select_from(_reports).where(_reports.c.state == state)
    return int(now.execute(there).scalar_one())


def _hashes_of(now: sa.Connection, ids: Sequence[bytes]) -> dict[bytes, tuple[bytes, int]]:
    """Hashes and state of those reports that are known."""
    columns = sa.select(_reports.c.id, _reports.c.hashes, _reports.c.state)
    rows = now.execute(columns.where(_reports.c.id.in_(ids)))
    return {bytes(row.id): (bytes(row.hashes), int(row.state)) for row in rows}


def _insert(now: sa.Connection, halves: Sequence[Half], moment: float) -> None:
    about = {"state": PENDING, "arrived": moment, "offered": 0.0}
    rows = [{"id": half.id, "hashes": half.hashes, **about} for half in halves]
    now.execute(sa.insert(_reports), rows)
    now.execute(sa.insert(_shares), [{"id": half.id, "share": half.share} for half in halves])


def _unfinished(now: sa.Connection) -> tuple[int, bytes] | None:
    row = now.execute(sa.select(_jobs).where(_jobs.c.answer.is_(None))).first()
    return None if row is None else (int(row.number), bytes(row.request))


def _again(known: tuple[bytes, int], half: Half) -> Refusal | None:
    """What to answer to a report whose id is known: the same one again is taken, once."""
    hashes, state = known
    if hashes != half.hashes:
        return Refusal(
            "replayed", "this id, and the token that goes with it, was used by another report", 409
        )
    if state == REFUSED:
        return Refusal(
            "mismatch",
            "leader and helper were sent halves that do not belong together: one of the two, or"
            " your client, is faulty. Tell both operators, and make no other report: both could be"
            " counted",
            409,
        )
    if state in (UNPROVEN, UNLUCKY):
        return _unproven(state)
    return None


def _unproven(state: int) -> Refusal:
    if state == UNLUCKY:
        return Refusal(
            "unlucky",
            "this report was refused by chance, which happens once in millions: take part again"
            " with another invitation",
            409,
        )
    return Refusal(
        "unproven",
        "this report does not show that its contribution is as short as this survey's are: your"
        " client is faulty; tell the operators",
        409,
    )


def _over() -> Refusal:
    return Refusal("over", "this survey is over: no more reports are taken", 410)


def _full(task: Task) -> Refusal:
    return Refusal(
        "full", f"this survey has the {task.most_reports:,} reports that it takes at most", 410
    )


def _code(code: str) -> bytes:
    return hashlib.sha256(code.strip().encode(errors="replace")).digest()
