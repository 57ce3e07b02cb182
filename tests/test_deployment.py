"""A federation on this host: its files, and a real deployment over TLS with node keys."""

import json
import os
import signal
import stat
import subprocess
from contextlib import suppress

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the Flower engine is an optional extra")

from cryptography import x509

import veilmap as vm
from deployments import logs, veilmap
from veilmap import deployment
from veilmap.deployment import Federation, certificates, layout


@pytest.fixture
def made(tmp_path):
    done = veilmap("federation", "init", tmp_path / "fed", "--rounds", 3, "--seed", 5)
    assert done.returncode == 0, done.stderr
    return Federation.load(tmp_path / "fed")


def test_init_writes_keys_that_only_their_owner_reads(made):
    private = ["certificates/ca.key", "certificates/server.key", "superexec.secret",
               *(f"keys/{node}" for node in made.names)]  # fmt: skip
    for name in private:
        assert stat.S_IMODE((made.folder / name).stat().st_mode) == 0o600, name
    keys = {(made.folder / "keys" / f"{node}.pub").read_text() for node in made.names}
    assert len(keys) == 3
    assert all(key.startswith("ecdsa-sha2-nistp384 ") for key in keys)


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
        (["up", "nowhere"], "nowhere holds no federation"),
        (["status", "nowhere"], "holds no federation"),
        (["init", ".", "--nodes", "2"], ". is not empty"),
        (["init", "fed", "--mechanism", "magic"], "no mechanism 'magic'"),
        (["init", "fed", "--mechanism", "aggregate", "--budget", "3"], "aggregate has no --budget"),
        (["init", "fed", "--mechanism", "aggregate", "--delta", "0.5"], "δ = 0.5 is not below 1/N"),
        (["init", "fed", "--server-sees", "all"], "--server-sees is uploads or sums"),
        (["renew", "nowhere"], "holds no federation"),
        (["init", "fed", "--nodes", "0"], "'--nodes'"),
        (["init", "fed", "--data", "no.csv"], "no.csv does not exist"),
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
    assert "5 users need --nodes 5" in done.stderr


def test_a_federation_that_is_down_says_so(made):
    assert not any(process.running for process in deployment.status(made))
    done = veilmap("federation", "run", made.folder)
    assert done.returncode == 2
    assert "veilmap federation up" in done.stderr


def test_a_process_that_is_not_ours_is_never_stopped(made):
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        state = made.folder / "state"
        state.mkdir(exist_ok=True)
        (state / "node-1.pid").write_text(f"{other.pid}\n")  # the number was given out again
        deployment.down(made)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


# ---- The real thing


@pytest.fixture
def running(made):
    try:
        deployment.up(made)
        yield made
    finally:
        deployment.down(made)
        assert not any(process.running for process in deployment.status(made))


@pytest.mark.xdist_group("deployment")
def test_a_real_deployment_gives_the_map_of_the_process(running):
    done = veilmap("federation", "run", running.folder, timeout=240)
    assert done.returncode == 0, done.stderr + logs(running)
    scene = vm.Scene.synthetic(0)
    data = scene.measure(users=3, seed=0)
    here = vm.train(
        data, scene.grid, mechanism=vm.GeometryAligned(noise_budget=10.0), rounds=3, seed=5
    )
    there = vm.Run.load(running.folder / "run")
    np.testing.assert_allclose(there.radio_map.heights, here.radio_map.heights, rtol=1e-9)
    assert [row.clients for row in there.history] == [3, 3, 3]
    _refuses_a_stranger(running)
    # What the operator can read says nothing of measurements and positions.
    seen = done.stdout + "".join(
        (running.folder / "logs" / f"{name}.log").read_text() for name in ("superlink", "superexec")
    )
    for secret in (*data.gain_db, *data.user_xyz[:, :2].ravel()):
        assert repr(float(secret)) not in seen


@pytest.mark.slow  # test_flower.py has the same in Flower's simulation
@pytest.mark.xdist_group("deployment")
def test_a_real_deployment_opens_only_sums(tmp_path):
    done = veilmap("federation", "init", tmp_path / "fed", "--mechanism", "aggregate", "--delta",
                   1e-3, "--rounds", 1, "--seed", 5)  # fmt: skip
    assert done.returncode == 0, done.stderr
    federation = Federation.load(tmp_path / "fed")
    try:
        deployment.up(federation)
        done = veilmap("federation", "run", federation.folder, timeout=240)
    finally:
        deployment.down(federation)
    assert done.returncode == 0, done.stderr + logs(federation)
    scene = vm.Scene.synthetic(0)
    here = vm.train(
        scene.measure(users=3, seed=0), scene.grid, rounds=1, seed=5,
        mechanism=vm.AggregateGaussian(delta=1e-3),
    )  # fmt: skip
    there = vm.Run.load(federation.folder / "run")
    np.testing.assert_allclose(there.radio_map.heights, here.radio_map.heights, rtol=1e-9)
    assert [row.clients for row in there.history] == [3]
    # Every node keeps its own account of what it has spent.
    for name in federation.names:
        spent = json.loads((federation.folder / "data" / f"{name}.parquet.spent.json").read_text())
        assert spent["opened"] == [0]


def _refuses_a_stranger(federation):
    """A node with a key that was never registered does not get in."""
    key = federation.folder / "keys" / "stranger"
    certificates.write_node_key(key)
    command = federation.command("node-1")
    command[command.index("--auth-supernode-private-key") + 1] = str(key)
    command[command.index("--port") + 1] = str(layout._free_port(0))
    log = federation.folder / "logs" / "stranger.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=os.environ | federation.environment, stdout=out, stderr=out,
            start_new_session=True,
        )  # fmt: skip
    try:
        assert process.wait(timeout=60) != 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its children too
        process.wait()
    assert "SuperNode" in log.read_text()
