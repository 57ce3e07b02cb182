"""A PostgreSQL server for tests, on loopback, in a temporary folder."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from veilmap._util.sockets import listening

_NAME = "veilmap"
_SECONDS = 30.0  # for a server to start or stop
_QUICK = ("fsync=off", "synchronous_commit=on", "shared_buffers=8MB", "max_connections=20")


class Postgres:
    """A server that can be stopped and started; its databases stay."""

    def __init__(self, programs, folder, port, account):
        self._programs, self._folder, self._port = programs, folder, port
        self._account = account
        self._process = None
        self._made = 0

    def url(self, name):
        return f"postgresql://{_NAME}@127.0.0.1:{self._port}/{name}"

    def new_database(self):
        """The address of a database with nothing in it."""
        self._made += 1
        name = f"survey_{self._made}"
        with self._connected("postgres") as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def start(self):
        """Start it, and wait until it answers."""
        command = [self._programs / "postgres", "-D", self._folder / "data", "-p", self._port,
                   "-h", "127.0.0.1", "-k", ""]  # fmt: skip
        command += [word for setting in _QUICK for word in ("-c", setting)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(word) for word in command], stdout=log, stderr=log, cwd=self._folder,
                stdin=subprocess.DEVNULL, **self._account,
            )  # fmt: skip
        end = time.monotonic() + _SECONDS
        while not self._answers():
            log = (self._folder / "log").read_text(errors="replace")
            assert self._process.poll() is None, log[-2000:]
            assert time.monotonic() < end, log[-2000:]
            time.sleep(0.05)

    def stop(self):
        """Stop it at once, also if somebody is connected."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)  # a "fast" shutdown
        try:
            self._process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGQUIT)  # ends its children, too
            self._process.wait(_SECONDS)
        self._process = None

    def _connected(self, name):
        psycopg = pytest.importorskip("psycopg")
        return psycopg.connect(self.url(name), autocommit=True, connect_timeout=5)

    def _answers(self):
        import psycopg

        try:
            with self._connected("postgres"):
                return True
        except psycopg.OperationalError:
            return False


@contextmanager
def postgres():
    """A server that answers; skips the test where PostgreSQL is not installed."""
    pytest.importorskip("psycopg")
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: there is no initdb")
    account = _account()
    folder = Path(tempfile.mkdtemp(prefix="veilmap-postgres-"))
    try:
        if account:
            os.chown(folder, account["user"], account["group"])
        with listening("127.0.0.1", [0]) as free:
            port = free.getsockname()[1]
        command = [programs / "initdb", "-D", folder / "data", "-U", _NAME, "-A", "trust",
                   "-E", "UTF8", "--locale=C", "--no-sync"]  # fmt: skip
        made = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, check=False,
            timeout=60, cwd=folder, **account,
        )  # fmt: skip
        if made.returncode:
            pytest.skip(f"PostgreSQL does not start here: {made.stderr.strip()[-500:]}")
        server = Postgres(programs, folder, port, account)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs():
    """The folder of initdb and postgres, the newest where there are several."""
    found = shutil.which("initdb")
    if found and (Path(found).resolve().parent / "postgres").exists():
        return Path(found).resolve().parent
    folders = [one.parent for one in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(folders, key=lambda one: float(one.parent.name), default=None)


def _account():
    """As whom the server runs: it refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL does not run as root, and there is no user for it")
