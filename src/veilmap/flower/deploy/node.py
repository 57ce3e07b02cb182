"""A node of a deployment: Flower's SuperNode, and the one client that answers for it.

    python -m veilmap.flower.deploy.node …

The arguments are those of ``flower-supernode``. Left to itself, Flower runs whatever app
comes with a run. Here the SuperNode only carries messages, and this process answers them with the
client of the veilmap that is installed on the node. A run's app may name that client and bring
settings for the run; any other is refused. Nothing of an app is unpacked, installed, imported or
executed.
"""

import io
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from contextlib import suppress
from logging import ERROR, INFO
from pathlib import Path
from typing import NoReturn

import httpx
from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore import log
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from veilmap.errors import ConfigurationError, VeilmapError
from veilmap.flower.deploy.templates import COMPONENTS

_PAUSE = 0.2  # seconds between looks for a message
_TIMEOUT = 30.0  # seconds for the SuperNode to answer
_GRACE = 4.0  # seconds for the SuperNode to end before it is told once more

# What Flower's tools put into an app that brings no code.
_FILES = frozenset({"pyproject.toml", ".info/CONTENT"})
_MOST_BYTES = 2**20  # of an app's settings


def check_app(content: bytes) -> None:
    """Refuse an app (a Flower App Bundle, a zip archive) that is not veilmap's own.

    It must be readable, bring no files of its own and name no other components.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            others = sorted(set(archive.namelist()) - _FILES)
            if others:
                raise ConfigurationError(f"it brings files of its own ({', '.join(others)[:200]})")
            with archive.open("pyproject.toml") as file:
                text = file.read(_MOST_BYTES)
        named = tomllib.loads(text.decode())["tool"]["flwr"]["app"]["components"]
    except VeilmapError:
        raise
    except Exception as error:  # whatever a broken archive makes its readers raise
        raise ConfigurationError(f"it cannot be read ({type(error).__name__})") from error
    if named != COMPONENTS:
        raise ConfigurationError(f"it names other components ({str(named)[:200]})")


def reply_to(message: Message, context: Context, app: bytes, client: ClientApp) -> Message:
    """The client's answer to a message of a run with that app, or an error.

    An error says nothing of its cause, which may depend on data; the node's log does.
    """
    try:
        check_app(app)
    except VeilmapError as error:
        reason = "this node runs no client but veilmap's own"
        log(ERROR, "Refused the app of run %s: %s; %s", context.run_id, error, reason)
        return Message(Error(ErrorCode.INVALID_FAB, reason), reply_to=message)
    try:
        return client(message, context)
    except Exception as error:
        log(ERROR, "The client raised an exception", exc_info=error)
        reason = "the client raised an exception; the node's log says which"
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


class _LocalClient(RuntimeHttpClient):
    """Flower's client of a SuperNode's API, by a socket in the file system."""

    def __init__(self, path: Path, *interceptors: ProtobufClientInterceptor) -> None:
        version = RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")
        super().__init__("http://supernode", interceptors=[version, *interceptors])
        self._client.close()
        # No proxy of the environment comes in between.
        here = httpx.HTTPTransport(uds=str(path))
        self._client = httpx.Client(transport=here, timeout=_TIMEOUT, trust_env=False)


class Answering:
    """The client's side of a SuperNode that hands messages out at a socket of its user's own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tasks = _LocalClient(path)

    def answer_next(self, client: ClientApp) -> bool:
        """Answer the next message; False where there is none."""
        # Agents are apps of another kind, refused like any other.
        kinds = [TaskType.CLIENT_APP, TaskType.AGENT_APP]
        found = self._tasks.AcquireTask(AcquireTaskRequest(supported_task_types=kinds))
        if not found.token:
            return False
        with _LocalClient(self.path, RuntimeTokenHttpInterceptor(found.token)) as task:
            alive = HeartbeatSender(lambda: _beat(task))
            alive.start()
            try:
                message, context, _, app = pull_task_input(task)
                reply = reply_to(message, context, app.content, client)
                push_message(task, reply, context)
            finally:
                alive.stop()
            ended = SubStatus.FAILED if reply.has_error() else SubStatus.COMPLETED
            push_task_output(task, context, ended, "")
        return True


def _beat(task: RuntimeHttpClient) -> bool:
    """Tell the SuperNode that its message is being worked on."""
    try:
        task.SendTaskHeartbeat(SendTaskHeartbeatRequest())
    except httpx.HTTPError:
        return False
    return True


def main() -> NoReturn:
    """Start the SuperNode and answer for it until it ends or this process is told to stop."""
    for told in (signal.SIGTERM, signal.SIGINT):
        signal.signal(told, lambda *_: sys.exit(0))
    # The folder is its owner's alone, like the socket in it.
    with tempfile.TemporaryDirectory(prefix="veilmap-node-") as folder:
        path = Path(folder) / "supernode"
        supernode = _started(sys.argv[1:], path)
        try:
            _answer(supernode, Answering(path))
        finally:
            _end(supernode)
    sys.exit(supernode.returncode)


def _end(supernode: subprocess.Popen[bytes]) -> None:
    """Let the SuperNode take its leave of the server.

    Whoever told this process to stop has mostly told its group, and a second signal would cut
    the SuperNode short: it gets one only if it was not told.
    """
    for insist in (supernode.poll, supernode.terminate, supernode.kill):
        insist()
        with suppress(subprocess.TimeoutExpired):
            supernode.wait(_GRACE)
            return


def _started(arguments: list[str], path: Path) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-P", "-m", "veilmap.flower.deploy.supernode", "--socket", str(path)]
    return subprocess.Popen([*program, *arguments, "--isolation", "process"])


def _answer(supernode: subprocess.Popen[bytes], answering: Answering) -> None:
    from veilmap.flower.app import client

    log(INFO, "This node answers with the client of %s", COMPONENTS["clientapp"])
    while supernode.poll() is None:
        try:
            busy = answering.answer_next(client)
        except httpx.TransportError:
            busy = False  # the SuperNode is not there yet, or not any more
        except Exception as error:
            log(ERROR, "A message could not be answered", exc_info=error)
            busy = False
        if not busy:
            time.sleep(_PAUSE)


if __name__ == "__main__":
    main()
