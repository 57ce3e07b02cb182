"""Who reaches what of a server, and which apps a node answers to, without a deployment."""

import asyncio
import io
import sys
import zipfile

import pytest

pytest.importorskip("flwr", reason="the Flower engine is an optional extra")

from flwr.app import Context, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.routers.control import router as control_router
from flwr.superlink.routers.fleet.router import router as fleet_router
from hypothesis import given
from hypothesis import strategies as st

from refusals import refused
from veilmap.errors import ConfigurationError
from veilmap.flower.deploy import node, superlink, templates

PRIVATE, PUBLIC = ("127.0.0.1", 9444), ("10.0.0.1", 9443)


def asked(path, *, method="POST", server=PUBLIC, kind="http", raw_path=None, headers=(), body=()):
    """The status that a request gets, and what the SuperLink behind saw of it (None: nothing).

    The body comes in pieces; None never comes.
    """
    seen, sent = [], []

    async def link(scope, receive, send):
        content = b""
        while True:
            message = await receive()
            content += message["body"]
            if not message["more_body"]:
                break
        seen.append((scope["path"], dict(scope["headers"]), content))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    pieces = [*(body or ()), b""]

    async def receive():
        if body is None:
            await asyncio.Event().wait()
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message):
        sent.append(message)

    scope = {
        "type": kind, "method": method, "path": path, "server": server, "headers": list(headers),
        "raw_path": path.encode() if raw_path is None else raw_path, "query_string": b"",
    }  # fmt: skip
    call = superlink.Doors(link, PRIVATE)(scope, receive, send)
    asyncio.run(asyncio.wait_for(call, timeout=30))
    return sent[0]["status"], seen[0] if seen else None


@pytest.mark.parametrize("path", sorted(superlink.NODE_CALLS))
def test_the_public_door_passes_what_nodes_call(path):
    status, seen = asked(path, body=[b"signed ", b"call"])
    assert (status, seen) == (200, (path, {}, b"signed call"))


def test_what_nodes_call_exists_and_registers_nobody():
    fleet = {route.path for route in fleet_router.routes}
    assert fleet > superlink.NODE_CALLS
    assert {path.rpartition("/")[2] for path in fleet - superlink.NODE_CALLS} == {
        "register-node",
        "unregister-node",
    }


@pytest.mark.parametrize("path", sorted({route.path for route in control_router.routes}))
def test_the_public_door_passes_no_control(path):
    assert asked(path) == (404, None)


@pytest.mark.parametrize(
    ("path", "raw_path"),
    [
        ("/v1/fleet/register-node", None),
        ("/v1/fleet/unregister-node", None),
        ("/v1/runtime/acquire-task", None),
        ("/health", None),
        ("/docs", None),
        ("", None),
        ("//v1/fleet/get-run", None),
        ("/v1//fleet/get-run", None),
        ("/v1/fleet/get-run/", None),
        ("/v1/fleet/get-run/../../control/list-runs", None),
        ("/v1/fleet/../control/list-runs", b"/v1/fleet/%2e%2e/control/list-runs"),
        ("/v1/fleet/get-run", b"/v1/%66leet/get-run"),
        ("/v1/fleet/get-run", b"/v1%2ffleet/get-run"),
        ("/V1/fleet/get-run", None),
        ("/v1/fleet/GET-RUN", None),
        ("/v1/fleet/get-run\n", None),
        ("https://10.0.0.1/v1/fleet/get-run", None),
    ],
)
def test_the_public_door_passes_no_other_spelling(path, raw_path):
    assert asked(path, raw_path=raw_path) == (404, None)


@given(st.text("/v1.%2fFeEtcontrol-rungi?#;\\", max_size=30))
def test_the_public_door_passes_nothing_else(path):
    if path not in superlink.NODE_CALLS:
        assert asked(path) == (404, None)


@pytest.mark.parametrize("method", ["GET", "PUT", "OPTIONS", "CONNECT"])
def test_the_public_door_passes_only_posts(method):
    assert asked("/v1/fleet/get-run", method=method) == (404, None)


def test_the_public_door_passes_no_other_protocol():
    assert asked("/v1/fleet/get-run", kind="websocket") == (404, None)


@pytest.mark.parametrize(
    "server", [None, ("127.0.0.1", PUBLIC[1]), (PUBLIC[0], PRIVATE[1]), ("0.0.0.0", PRIVATE[1])]
)
def test_only_one_address_reaches_everything(server):
    assert asked("/v1/control/list-runs", server=PRIVATE)[0] == 200
    assert asked("/v1/control/list-runs", server=server) == (404, None)


@pytest.mark.parametrize("server", [PUBLIC, PRIVATE])
def test_no_host_header_comes_through(server):
    headers = [(b"host", b"x/v1/runtime/pull-object?"), (b"accept", b"*/*")]
    _, (_, seen, _) = asked("/v1/fleet/pull-object", server=server, headers=headers)
    assert seen == {b"accept": b"*/*"}


def test_bodies_are_bounded(monkeypatch):
    monkeypatch.setattr(superlink, "MOST_BYTES", 10)
    assert asked("/v1/fleet/push-object", body=[b"12345", b"67890"])[0] == 200
    assert asked("/v1/fleet/push-object", body=[b"12345", b"67890", b"1"]) == (413, None)


def test_bodies_have_their_time(monkeypatch):
    monkeypatch.setattr(superlink, "MOST_SECONDS", 0.0)
    # The timeout strikes where a body is waited for: this one never comes.
    assert asked("/v1/fleet/push-object", body=None) == (408, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "radio.example"])
def test_control_is_never_on_a_network(monkeypatch, tmp_path, capsys, host):
    (tmp_path / "token").write_text("right")
    arguments = ["--public", "127.0.0.1:9443", "--operator-token-file", str(tmp_path / "token"),
                 "--insecure", "--host", host]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["superlink", *arguments])
    with pytest.raises(SystemExit) as ended:
        superlink.main()
    assert ended.value.code == 2
    assert host in capsys.readouterr().err


def test_the_control_api_asks_for_the_operators_token():
    gate = superlink.OperatorOnly("right")
    accepted, account = gate.validate_tokens_in_metadata([(superlink.ACCESS_TOKEN_KEY, "right")])
    assert accepted
    assert account is not None
    for metadata in ([], [(superlink.ACCESS_TOKEN_KEY, "wrong")], [("other", "right")]):
        assert gate.validate_tokens_in_metadata(metadata) == (False, None)
    assert gate.refresh_tokens([(superlink.ACCESS_TOKEN_KEY, "right")]) == (None, None)


# ---- Which apps a node answers to

OURS = templates.app({"rounds": 3}, "1.2.3")


def archive(files):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as out:
        for name, text in files.items():
            out.writestr(zipfile.ZipInfo(name), text)  # no time of its own: it names a test
    return made.getvalue()


def bundle(settings=OURS, *code):
    """An app as `flwr run` sends it."""
    return archive({"pyproject.toml": settings, ".info/CONTENT": ""} | dict.fromkeys(code, ""))


def test_a_node_answers_to_veilmaps_app_whatever_its_settings():
    node.check_app(bundle())
    node.check_app(bundle(templates.app({"rounds": 9, "deadline": 1.5}, "1.2.3")))
    # Nothing is installed: what an app says it needs does not matter.
    node.check_app(bundle(OURS.replace("veilmap[flower]", "malware")))


@pytest.mark.parametrize(
    ("app", "named"),
    [
        (bundle(OURS.replace("app:client", "app:server")), "'clientapp'"),
        (bundle(OURS.replace("app:server", "own:server"), "own.py"), "own.py"),
        (
            bundle(OURS.replace("[tool.flwr.app.components]", "[tool.flwr.app.components]\nx = 1")),
            "'x': 1",
        ),
        # The same names, and a package that would come before the installed one.
        (bundle(OURS, "veilmap/federation/flower/app.py"), "veilmap/federation/flower/app.py"),
        (bundle(OURS, "sitecustomize.py"), "sitecustomize.py"),
        (bundle(OURS, "../pyproject.toml"), "../pyproject.toml"),
        (archive({"pyproject.toml": "[project]\nname = 'x'"}), "KeyError"),
        (archive({"pyproject.toml": "["}), "TOMLDecodeError"),
        (archive({}), "KeyError"),
        (b"", "BadZipFile"),
        (b"PK\x03\x04 no archive", "BadZipFile"),
    ],
)
def test_a_node_refuses_any_other_app(app, named):
    with refused(ConfigurationError, named):
        node.check_app(app)


@pytest.fixture
def question():
    # Flower stamps messages with the task they are sent from.
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    message = Message(RecordDict(), dst_node_id=1, message_type="query")
    return message, Context(7, 1, {}, RecordDict(), {})


def test_a_refused_app_reaches_no_client(question):
    def client(message, context):
        pytest.fail("asked")

    reply = node.reply_to(*question, bundle(OURS, "sitecustomize.py"), client)
    assert reply.error.code == ErrorCode.INVALID_FAB
    assert question[0].metadata.message_id == reply.metadata.reply_to_message_id


def test_the_client_answers_for_veilmaps_app(question):
    reply = node.reply_to(*question, bundle(), lambda m, c: Message(RecordDict(), reply_to=m))
    assert not reply.has_error()


def test_what_a_client_raises_stays_on_its_node(question):
    def client(message, context):
        raise ValueError("user 3 is at (12.5, 80.25)")

    reply = node.reply_to(*question, bundle(), client)
    assert reply.error.code == ErrorCode.CLIENT_APP_RAISED_EXCEPTION
    assert "12.5" not in str(reply.error.reason)
