"""A federation on this host: its files, and a real deployment over TLS with node keys."""

import json
import re
import socket
import ssl
import stat
import subprocess
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the Flower engine is an optional extra")

from cryptography import x509
from flwr.common.config import parse_config_args
from flwr.common.constant import ErrorCode
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
from flwr.superlink.routers.control.middlewares import CONTROL_AUTH_ROUTE_KEYS

import veilmap as vm
from deployments import command, flwr, listed, log_of, logs, running, veilmap
from deployments import made as new
from refusals import refused
from veilmap.errors import ConfigurationError, DataError
from veilmap.flower.deploy import layout, processes, templates
from veilmap.flower.deploy.layout import Federation
from veilmap.flower.deploy.superlink import NODE_CALLS
from veilmap.flower.deploy.supernode import private_socket
from veilmap.flower.secagg import account, enrolment


@pytest.fixture
def made(tmp_path):
    done = veilmap("federation", "init", tmp_path / "fed", "--rounds", 3, "--seed", 5)
    assert done.returncode == 0, done.stderr
    return Federation.load(tmp_path / "fed")


def test_init_writes_keys_that_only_their_owner_reads(made):
    private = ["certificates/ca.key", "certificates/server.key", "superexec.secret",
               "operator.token", "flwr/credentials.yaml",
               *(f"keys/{node}" for node in made.names)]  # fmt: skip
    for name in private:
        assert stat.S_IMODE((made.folder / name).stat().st_mode) == 0o600, name
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700
    keys = {(made.folder / "keys" / f"{node}.pub").read_text() for node in made.names}
    assert len(keys) == 3
    assert all(key.startswith("ecdsa-sha2-nistp384 ") for key in keys)


def test_owners_make_their_own_keys_and_a_roster_of_them(tmp_path):
    for name in ("ann", "ben"):
        done = veilmap("federation", "enrol", tmp_path / name)
        assert done.returncode == 0, done.stderr
    lines = [(tmp_path / f"{name}.pub").read_text() for name in ("ann", "ben")]
    (tmp_path / "roster").write_text("".join(lines))
    for name in ("ann", "ben"):
        own = tmp_path / f"{name}.account.json"
        node = enrolment.Enrolment.load(tmp_path / name, tmp_path / "roster", own)
        assert node.name == name
        assert account.load(own, node.owner).answers == 0
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    # A key that is there already keeps its account.
    before = (tmp_path / "ann").read_bytes()
    assert veilmap("federation", "enrol", tmp_path / "ann").returncode == 2
    assert (tmp_path / "ann").read_bytes() == before


def test_the_servers_certificate_is_signed_for_its_addresses(made):
    tls = made.folder / "certificates"
    authority = x509.load_pem_x509_certificate((tls / "ca.crt").read_bytes())
    server = x509.load_pem_x509_certificate((tls / "server.pem").read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "127.0.0.1" in map(str, names.get_values_for_type(x509.IPAddress))
    before, key = server.serial_number, (tls / "ca.key").read_bytes()
    done = veilmap("federation", "renew", made.folder, "--days", 30)
    assert done.returncode == 0, done.stderr
    assert (tls / "ca.key").read_bytes() == key  # the authority stays, and so do the nodes
    renewed = x509.load_pem_x509_certificate((tls / "server.pem").read_bytes())
    renewed.verify_directly_issued_by(authority)
    assert renewed.serial_number != before
    assert (renewed.not_valid_after_utc - renewed.not_valid_before_utc).days == 30
    (tls / "ca.key").unlink()
    done = veilmap("federation", "renew", made.folder)
    assert done.returncode == 2
    assert "renew where the authority's key is" in done.stderr


def test_nodes_get_their_own_users_and_nobody_elses(made):
    files = [made.folder / "data" / f"{node}.parquet" for node in made.names]
    users = [vm.Measurements.load(file).users.tolist() for file in files]
    assert users == [[0], [1], [2]]


def test_nothing_phones_home_and_security_is_on(made):
    link = (made.folder / "start" / "superlink.sh").read_text()
    for wanted in ("FLWR_TELEMETRY_ENABLED=0", "FLWR_DISABLE_UPDATE_CHECK=1",
                   "--enable-supernode-auth", "--ssl-certfile", "--isolation process",
                   "--disable-runtime-dependency-installation"):  # fmt: skip
        assert wanted in link
    node = (made.folder / "start" / "node-2.sh").read_text()
    assert "--root-certificates" in node
    assert "--auth-supernode-private-key" in node
    assert "--insecure" not in link + node
    assert (made.folder / "systemd" / "veilmap-node-3.service").exists()


def test_a_node_reads_its_configuration_where_it_is_edited(made):
    settings = made.settings("node-2")
    script = (made.folder / "start" / "node-2.sh").read_text()
    assert f"--node-config {settings}" in script
    assert "noise-budget" not in script
    edited = settings.read_text().replace("noise-budget = 10.0", "noise-budget = 77.0")
    settings.write_text(edited)
    read = parse_config_args([str(settings)])  # as Flower does
    assert (read["noise-budget"], read["mechanism"]) == (77.0, "aligned")
    assert str(settings) in made.command("node-2")


def test_a_federation_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(self, path):
        raise DataError(f"cannot write {path}: No space left on device")

    scene = vm.Scene.synthetic(2)
    data = scene.measure(users=2, links_per_user=10, seed=0)
    (tmp_path / "empty").mkdir()
    settings = {
        "nodes": 2, "host": "127.0.0.1", "data": data, "grid": scene.grid, "rounds": 3,
        "mechanism": vm.NoNoise(), "server_sees": "uploads",
    }  # fmt: skip
    with refused(ConfigurationError, "port", parameter="port"):
        layout.init(tmp_path / "fed", port=65_535, **settings)
    monkeypatch.setattr(vm.Measurements, "save", full)
    for name in ("fed", "empty"):
        with refused(DataError, "No space left"):
            layout.init(tmp_path / name, port=0, **settings)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert list((tmp_path / "empty").iterdir()) == []
    monkeypatch.undo()
    heard = []
    layout.init(tmp_path / "fed", port=0, **settings, on_node=heard.append)
    assert heard == [1, 2]


def test_measurements_of_ones_own_are_dealt_out(tmp_path):
    scene = vm.Scene.synthetic(2)
    scene.measure(users=5, links_per_user=10, seed=0).save(tmp_path / "links.csv")
    done = veilmap("federation", "init", tmp_path / "fed", "--nodes", 2, "--data",
                   tmp_path / "links.csv", "--mechanism", "none")  # fmt: skip
    assert done.returncode == 0, done.stderr
    fed = Federation.load(tmp_path / "fed")
    users = [vm.Measurements.load(fed.folder / "data" / f"{n}.parquet").users for n in fed.names]
    assert [own.tolist() for own in users] == [[0, 2, 4], [1, 3]]
    assert "noise-budget" not in (fed.folder / "app" / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["up", "nowhere"], "nowhere"),
        (["status", "nowhere"], "nowhere"),
        (["init", ".", "--nodes", "2"], ". is not empty"),
        (["init", "fed", "--mechanism", "magic"], "'magic'"),
        (["init", "fed", "--mechanism", "aggregate", "--budget", "3"], "--budget"),
        (["init", "fed", "--mechanism", "aggregate", "--delta", "0.5"], "δ = 0.5"),
        (["init", "fed", "--server-sees", "all"], "--server-sees"),
        (["renew", "nowhere"], "nowhere"),
        (["init", "fed", "--nodes", "0"], "'--nodes'"),
        (["init", "fed", "--data", "no.csv"], "no.csv"),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "something").write_text("here")
    done = veilmap("federation", *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "fed").exists()


def test_in_a_sum_every_user_has_a_node(tmp_path):
    scene = vm.Scene.synthetic(2)
    scene.measure(users=5, links_per_user=10, seed=0).save(tmp_path / "links.csv")
    done = veilmap("federation", "init", tmp_path / "fed", "--data", tmp_path / "links.csv",
                   "--server-sees", "sums")  # fmt: skip
    assert done.returncode == 2
    assert "5 users need as many nodes, not 3 (--nodes)" in done.stderr


def test_a_federation_that_is_down_says_so(made):
    assert not any(process.running for process in processes.status(made))
    done = veilmap("federation", "status", made.folder, "--json", made.folder / "status.json")
    assert done.returncode == 1
    told = json.loads((made.folder / "status.json").read_text())
    assert told["running"] is False
    assert [one["pid"] for one in told["processes"]] == [None] * 5
    done = veilmap("federation", "run", made.folder)
    assert done.returncode == 2
    assert "veilmap federation up" in done.stderr


def test_a_port_that_something_else_has_is_named_before_anything_starts(made):
    with socket.create_server(("127.0.0.1", made.port + 1)):
        done = veilmap("federation", "up", made.folder)
    assert done.returncode == 2
    assert str(made.port + 1) in done.stderr
    assert not any(process.running for process in processes.status(made))


def test_a_nodes_socket_is_its_owners_alone(tmp_path):
    with private_socket(tmp_path / "socket"):
        assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o600


def test_a_process_that_is_not_ours_is_never_stopped(made):
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        state = made.folder / "state"
        state.mkdir(exist_ok=True)
        (state / "node-1.pid").write_text(f"{other.pid}\n")  # the number was given out again
        processes.down(made)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


# ---- The real thing


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """One deployment for all that follows: it takes a while to come up."""
    federation = new(tmp_path_factory.mktemp("deployed") / "fed", "--rounds", 3)
    with running(federation):
        yield federation


@pytest.mark.xdist_group("deployment")
def test_a_real_deployment_gives_the_map_of_the_process(deployed):
    done = veilmap("federation", "run", deployed.folder, timeout=240)
    assert done.returncode == 0, done.stderr + logs(deployed)
    scene = vm.Scene.synthetic(0)
    data = scene.measure(users=3, seed=0)
    here = vm.train(
        data, scene.grid, mechanism=vm.GeometryAligned(noise_budget=10.0), rounds=3, seed=5
    )
    there = vm.Run.load(deployed.folder / "run")
    np.testing.assert_allclose(there.radio_map.heights, here.radio_map.heights, rtol=1e-9)
    assert [row.clients for row in there.history] == [3, 3, 3]
    # What the operator can read says nothing of measurements and positions.
    seen = done.stdout + log_of(deployed, "superlink") + log_of(deployed, "superexec")
    for secret in (*data.gain_db, *data.user_xyz[:, :2].ravel()):
        assert repr(float(secret)) not in seen


@pytest.mark.xdist_group("deployment")
def test_a_federation_that_is_up_says_so(deployed):
    steps = []
    processes.up(deployed, steps.append)  # nothing is left to start
    assert all(any(node in step for step in steps) for node in deployed.names)
    done = veilmap("federation", "status", deployed.folder)
    assert done.returncode == 0, done.stdout


@pytest.mark.xdist_group("deployment")
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
def test_a_node_listens_on_no_port(deployed):
    """Every local user could connect to one."""
    groups = {one.name: one.pid for one in processes.status(deployed)}
    assert _listening(groups["superlink"])  # this test can see ports
    for node in deployed.names:
        assert not _listening(groups[node]), node


def _listening(group):
    """Sockets of a process group that take connections over TCP."""
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    listening = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
    ps = ["ps", "-e", "-o", "pgid=,pid="]
    found = subprocess.run(ps, capture_output=True, text=True, check=True).stdout
    own = [pid for pgid, pid in map(str.split, found.splitlines()) if int(pgid) == group]
    assert own
    files = [file for pid in own for file in Path(f"/proc/{pid}/fd").iterdir()]
    return listening & {_target(file) for file in files}


def _target(file):
    """Where a link of /proc leads; nowhere once its file is closed."""
    try:
        return str(file.readlink())
    except OSError:
        return ""


@pytest.mark.xdist_group("deployment")
def test_a_stranger_on_the_network_controls_nothing(deployed, tmp_path):
    known = _known(deployed)
    run = next(iter(known["runs"]), "1")
    # All that a stranger has is public: the address and the authority's certificate.
    authority = deployed.folder / "certificates" / "ca.crt"
    config = templates.flower_config(layout.LINK, deployed.address, authority)
    (tmp_path / "config.toml").write_text(config)
    enrolment.write_key(tmp_path / "key")
    for attempt in (
        ["list"], ["supernode", "list"], ["supernode", "register", tmp_path / "key.pub"],
        ["run", deployed.folder / "app"], ["log", run], ["stop", run],
    ):  # fmt: skip
        done = flwr(deployed, *attempt, layout.LINK, home=tmp_path)
        assert done.returncode != 0, done.stdout
    assert _known(deployed) == known


@pytest.mark.xdist_group("deployment")
def test_every_api_is_closed_to_who_shows_nothing(deployed):
    known = _known(deployed)
    for path in sorted({path for _, path in PROTOBUF_REQUEST_TYPES}):
        public = _status(deployed.address, path, deployed)
        assert public == (401 if path in NODE_CALLS else 404), path
        # On the server's own host, without the operator's token. Three calls are for logging in,
        # which gives out nothing here.
        if ("POST", path) not in CONTROL_AUTH_ROUTE_KEYS:
            assert _status(deployed.control, path, deployed) == 401, path
    assert _known(deployed) == known


@pytest.mark.xdist_group("deployment")
@pytest.mark.parametrize(
    "target",
    [
        "/v1/control/list-runs", "//v1/control/list-runs", "/v1/fleet/../control/list-runs",
        "/v1/fleet/%2e%2e/control/list-runs", "/v1/fleet%2f..%2fcontrol/list-runs",
        "/v1/fleet/get-run/../../control/list-runs", "/V1/CONTROL/list-runs", "/v1/Fleet/get-run",
        "https://127.0.0.1/v1/control/list-runs", "https:///v1/control/list-runs",
        "/v1/%63ontrol/list-runs", "/v1/%66leet/get-run", "/v1/control/list-runs?/v1/fleet/get-run",
        "/v1/control/list-runs#/v1/fleet/get-run", "/v1/fleet/get-run;/../../control/list-runs",
    ],
)  # fmt: skip
def test_no_spelling_of_a_path_gets_past_the_public_door(deployed, target):
    for host in ("127.0.0.1", deployed.control, "x/v1/fleet/get-run?"):
        assert _raw_status(deployed, target, host) in (400, 404), (target, host)


@pytest.mark.xdist_group("deployment")
def test_a_node_with_a_strangers_key_is_refused(deployed):
    key = deployed.folder / "keys" / "stranger"
    enrolment.write_key(key)
    arguments = deployed.command("node-1")
    arguments[arguments.index("--auth-supernode-private-key") + 1] = str(key)
    with command(deployed, "stranger", arguments) as node:
        assert node.wait(timeout=60) != 0
    assert "SuperNode ID:" not in log_of(deployed, "stranger")


_OTHER_CLIENT = """\
from pathlib import Path
from flwr.clientapp import ClientApp
Path({marker!r}).touch()
app = ClientApp()
"""
_OTHER_SERVER = """\
import json
from pathlib import Path
from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp
app = ServerApp()

@app.main()
def main(grid, context):
    nodes = list(grid.get_node_ids())
    asked = [Message(RecordDict(), dst_node_id=node, message_type="query") for node in nodes]
    replies = grid.send_and_receive(asked, timeout=60)
    codes = [reply.error.code if reply.has_error() else None for reply in replies]
    Path({answers!r}).write_text(json.dumps(codes))
"""


@pytest.mark.xdist_group("deployment")
def test_nodes_refuse_another_app_even_of_the_operator(deployed, tmp_path):
    marker, answers, other = tmp_path / "ran", tmp_path / "answers", tmp_path / "app"
    settings = (deployed.folder / "app" / "pyproject.toml").read_text()
    for side in ("client", "server"):
        settings = settings.replace(f"veilmap.flower.app:{side}", f"other.{side}:app")
    (other / "other").mkdir(parents=True)
    (other / "pyproject.toml").write_text(settings)
    (other / "other" / "__init__.py").write_text("")
    (other / "other" / "client.py").write_text(_OTHER_CLIENT.format(marker=str(marker)))
    (other / "other" / "server.py").write_text(_OTHER_SERVER.format(answers=str(answers)))
    done = flwr(deployed, "run", other, layout.LINK, "--stream")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not marker.exists()
    assert json.loads(answers.read_text()) == [ErrorCode.INVALID_FAB] * 3, logs(deployed)
    for name in deployed.names:
        assert re.search(r"Refused the app of run \d+: .*other/client.py", log_of(deployed, name))


def _known(federation):
    """What the SuperLink knows that a stranger could have changed."""
    runs = {run["run-id"]: run["status"] for run in listed(federation, "list")["runs"]}
    nodes = {node["node-id"] for node in listed(federation, "supernode", "list")["nodes"]}
    return {"runs": runs, "nodes": nodes}


def _status(address, path, federation):
    """What an empty call gets that brings no key and no token."""
    return _raw_status(federation, path, address, int(address.rpartition(":")[2]))


def _raw_status(federation, target, host, port=None):
    """The status of a request whose target is sent as it stands."""
    trusted = ssl.create_default_context(cafile=federation.folder / "certificates" / "ca.crt")
    request = (
        f"POST {target} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/protobuf\r\n"
        "Content-Length: 0\r\nConnection: close\r\n\r\n"
    )
    with (
        socket.create_connection(("127.0.0.1", port or federation.port), timeout=20) as plain,
        trusted.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(request.encode())
        return int(connection.makefile("rb").readline().split()[1])


@pytest.mark.slow  # test_flower.py has the same in Flower's simulation
@pytest.mark.xdist_group("deployment")
def test_a_real_deployment_opens_only_sums(tmp_path):
    done = veilmap("federation", "init", tmp_path / "fed", "--mechanism", "aggregate", "--delta",
                   1e-3, "--rounds", 1, "--seed", 5)  # fmt: skip
    assert done.returncode == 0, done.stderr
    federation = Federation.load(tmp_path / "fed")
    with running(federation):
        done = veilmap("federation", "run", federation.folder, timeout=240)
    assert done.returncode == 0, done.stderr + logs(federation)
    scene = vm.Scene.synthetic(0)
    here = vm.train(
        scene.measure(users=3, seed=0),
        scene.grid,
        rounds=1,
        seed=5,
        mechanism=vm.AggregateGaussian(delta=1e-3),
    )
    there = vm.Run.load(federation.folder / "run")
    np.testing.assert_allclose(there.radio_map.heights, here.radio_map.heights, rtol=1e-9)
    assert [row.clients for row in there.history] == [3]
    # Every node keeps its own account of what it has spent.
    for name in federation.names:
        assert json.loads(federation.account(name).read_text())["answers"] == 1
