import json

import pytest

from veilmap.web import files, views
from webs import client_of, get_exactly, line_of, make_runs, service_of, strict

TOKEN = "a-token-that-nobody-can-guess"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A page of two files, beside one that is not part of it."""
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html>")
    (folder / "main.js").write_text("export {};")
    (folder / "types.d.ts").write_text("secret types")
    (tmp_path / "app.py").write_text("secret code")
    monkeypatch.setattr(files, "STATIC", folder)


@pytest.fixture
def service(place, tmp_path):
    return service_of([place], tmp_path / "work")


@pytest.fixture
def client(service, page):
    return client_of(service)


@pytest.fixture
def stranger(service, page):
    """Somebody who asks a server that wants a token."""
    return client_of(service, TOKEN)


def short(text):
    return text[-40:]


def assert_guarded(answer):
    headers = answer.headers
    assert headers.get_list("content-security-policy") == [files.policy()]
    assert "default-src 'none'" in files.policy()
    assert "frame-ancestors 'none'" in files.policy()
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


# ---- who may ask


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8765", "localhost:1", "[::1]:8765", "127.0.0.2:1"]
)
def test_on_loopback_its_own_names_are_answered(client, host):
    assert client.get("/api/state", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8765", "", "[::1", ":80",
     "[::1].evil.example", "evil.example:127.0.0.1", "user@127.0.0.1", "127.0.0.1:80:80"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/", "/page/main.js", "/api/state", "/api/runs/aligned/layer"])
def test_a_foreign_name_that_leads_here_is_refused(client, host, path):
    answer = client.get(path, headers={"Host": host})
    assert "loopback" in line_of(answer, 403)
    assert_guarded(answer)


@pytest.mark.parametrize("header", [None, "", "no", "PAGE"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_another_page_cannot_start_anything(service, client, header, method):
    headers = {} if header is None else {"X-Veilmap": header}
    client.headers.pop("X-Veilmap")
    for path in ("/api/runs", "/api/runs/aligned/audit"):
        answer = client.request(method, path, content="{}", headers=headers)
        assert "X-Veilmap" in line_of(answer, 403)
        assert_guarded(answer)
    assert service.jobs.all() == []


def test_with_the_header_it_is_started(service, client):
    assert client.post("/api/runs", json={"rounds": 2}).status_code == 202
    assert client.post("/api/runs/aligned/audit").status_code == 202
    assert [job.kind for job in service.jobs.all()] == ["train", "audit"]


# ---- a token


@pytest.mark.parametrize(
    "path",
    ["/", "/page/main.js", "/page/none.js", "/api/state", "/api/openapi.json", "/nowhere",
     "/api/runs/aligned", "/api/runs/none", "/?token=wrong", "/?token=", "/?token",
     f"/api/state?token={TOKEN}", f"/page/main.js?token={TOKEN}", "/?token=%ff%00%CE%BC"],
)  # fmt: skip
def test_without_the_token_nothing_is_told(stranger, path):
    answer = stranger.get(path)
    assert "a token is needed" in line_of(answer, 401)
    assert_guarded(answer)
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": "Bearer Ünïcode".encode("latin-1")},
        {"Authorization": "Bearer μ".encode()},
        {"Cookie": "veilmap=wrong"},
        {"Cookie": f"other={TOKEN}"},
        {"Cookie": "veilmap=ü".encode("latin-1")},
        {"Cookie": 'veilmap="\\400"; ;;=;\x01'},
        {"Cookie": "veilmap"},
    ],
)
def test_a_wrong_token_opens_nothing(stranger, headers):
    for path in ("/", "/api/state"):
        assert_guarded(answer := stranger.get(path, headers=headers))
        line_of(answer, 401)
    line_of(stranger.post("/api/runs", json={}, headers=headers), 401)


def test_the_printed_address_becomes_a_cookie(stranger):
    answer = stranger.get(f"/?token={TOKEN}")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    parts = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")}
    assert {"httponly", "samesite=strict", "path=/"} <= parts
    assert_guarded(answer)
    assert stranger.get("/").status_code == 200  # the client keeps the cookie
    assert stranger.get("/api/state").status_code == 200


def test_a_program_sends_the_token_with_each_request(stranger):
    headers = {"Authorization": f"Bearer {TOKEN}", "Host": "radio.example"}
    assert stranger.get("/api/state", headers=headers).status_code == 200
    stranger.headers.pop("X-Veilmap")
    line_of(stranger.post("/api/runs", json={}, headers=headers), 403)


# ---- what every answer carries


def test_every_answer_is_guarded(client):
    for path, status in {
        "/": 200, "/page/main.js": 200, "/page/none.js": 404, "/api/state": 200, "/api/no": 404,
        "/api/runs/none": 404, "/api/runs/aligned/layer": 400, "/api/runs/aligned/seen": 422,
        "/api/runs/aligned/events": 200, "/api/runs/aligned/layer.tif?layer=heights": 200,
        "/api/openapi.json": 200,
    }.items():  # fmt: skip
        answer = client.get(path)
        assert answer.status_code == status
        assert_guarded(answer)
        if status != 200:
            line_of(answer, status)


def test_a_fault_of_ours_is_one_guarded_line(service, page, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("a secret")

    monkeypatch.setattr(views, "history_rows", broken)
    answer = client_of(service, raise_server_exceptions=False).get("/api/runs/aligned/history")
    assert "secret" not in line_of(answer, 500)
    assert_guarded(answer)
    assert "a secret" in caplog.text


def test_the_api_is_described_and_no_page_loads_scripts_from_elsewhere(client):
    found = strict(client.get("/api/openapi.json"))
    assert "/api/runs/{run}/layer" in found["paths"]
    for path in ("/docs", "/redoc", "/docs/oauth2-redirect"):
        line_of(client.get(path), 404)


def test_files_of_the_page_have_their_types(client):
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/page/main.js").headers["content-type"].startswith("text/javascript")


# ---- paths


@pytest.mark.parametrize(
    "path",
    ["/api/runs/..%2f..%2fetc%2fpasswd", "/api/runs/%2e%2e", "/api/runs/..", "/page/../app.py",
     "/page/%2e%2e/app.py", "/page/..%2fapp.py", "/page/..%5capp.py", "/page//etc/passwd",
     "/page/%2fetc%2fpasswd", "/page/types.d.ts", "/page/", "/page/main.js%00",
     "/page/main.js/", "/page/./main.js", "/api/runs/%00", "/api/runs/aligned%00",
     "/api/runs/aligned%2fconfig.json", "/api/runs/" + "a" * 201, "/api/runs/" + "a" * 60_000,
     "/api/runs/%ff%fe", "/api/runs/%ed%a0%80", "/api/runs/aligned%0a", "/api/runs/ALIGNED",
     "/api/runs/aligned/layer.tif/../../state/x", "//api/state", "/api/runs/%252e%252e"],
    ids=short,
)  # fmt: skip
def test_an_address_leads_to_a_run_or_a_file_of_the_page_or_nowhere(client, path):
    answer = get_exactly(client, path)
    line_of(answer, 400, 404, 422)
    for secret in (b"secret", b"root:", b"format"):
        assert secret not in answer.content


# ---- odd values


LAYER, SEEN = "/api/runs/aligned/layer", "/api/runs/aligned/seen?user=0&round=1"


@pytest.mark.parametrize(
    "address",
    [
        *(f"{LAYER}?x={x}&y=0&z=0" for x in ("1e308", "1e999", "nan", "inf", "-inf", "1e8", "x")),
        *(f"{LAYER}?layer=heights&altitude={z}" for z in ("-1", "nan", "1e5", "")),
        f"{LAYER}?layer=secret", f"{LAYER}?layer=heights&of=both",
        f"{LAYER}?station={'9' * 300}", f"{LAYER}?station=%0aSet-Cookie:a=b%0d%0a",
        *(f"{SEEN}&power={power}" for power in ("0", "1e999", "-1", "nan", "1" * 30, "2.")),
        *(f"{SEEN}&noise_budget={value}" for value in ("-1", "nan", "inf", "1e8", "")),
        *(f"{SEEN}&clip={value}" for value in ("0", "-1", "nan", "1e8")),
        f"{SEEN}&tradeoff=-1", f"{SEEN}&sum=perhaps",
        *(f"/api/runs/aligned/seen?user=0&round={n}" for n in ("0", "-1", 10**30, "9" * 5000, "x")),
        f"/api/runs/aligned/seen?round=1&user={'u' * 10**5}",
        "/api/runs/aligned/seen?round=1&user=%0a0", "/api/runs/aligned/seen?round=1&user=%00",
        "/api/runs/aligned/seen?round=1", "/api/runs/aligned/seen?user=0",
    ],
    ids=short,
)  # fmt: skip
def test_values_out_of_bounds_are_refused_in_a_line(client, address):
    line_of(get_exactly(client, address), 400, 422)


@pytest.mark.parametrize(
    "body",
    ['{"rounds": 1000000000}', '{"rounds": 1}', '{"rounds": 2.5}', '{"rounds": "many"}',
     '{"rounds": null}', '{"users": 0}', '{"users": -3}', '{"users": 1e300}', '{"city": -1}',
     '{"seed": -1}', '{"seed": 1e99}', '{"options": {"noise_budget": NaN}}',
     '{"options": {"noise_budget": 1e999}}',
     '{"options": {"noise_budget": -1}}',
     '{"options": {"clip": 0}}', '{"mechanism": "aggregate", "options": {"epsilon": 0}}',
     '{"clip": 1}', '{"mechanism": "weak"}', '{"mechanism": ["none"]}',
     '{"like": "none"}', '{"like": 3}', '{"like": "../aligned"}', '{"like": "\\ud800"}',
     '{"like": "bare"}', '{"out": "/tmp"}', '{"rounds": 2, "extra": "--out=/tmp"}', '[]', 'null',
     '"text"', '3', '', '{', '{"rounds": 2', 'rounds=2', "\xff", "[" * 9_000,
     '{"rounds": %s}' % ("9" * 5000), '{"sums": "perhaps"}',
     '{"mechanism": "none", "options": {"noise_budget": 3}}',
     '{"mechanism": "aligned", "options": {"epsilon": 1}}',
     '{"mechanism": "aggregate", "users": 5, "options": {"tradeoff": 1}}'],
    ids=short,
)  # fmt: skip
def test_a_run_that_cannot_be_is_refused_before_it_waits(service, client, body):
    answer = client.post(
        "/api/runs", content=body.encode("latin-1"), headers={"Content-Type": "application/json"}
    )
    line_of(answer, 400, 404, 422)
    assert service.jobs.all() == []


def test_a_body_that_is_too_large_or_of_unknown_length_is_not_read(service, client):
    large = json.dumps({"like": "x" * 10_000})
    assert "larger" in line_of(client.post("/api/runs", content=large), 413)

    def pieces():
        yield b'{"rounds": 2}'

    assert "length" in line_of(client.post("/api/runs", content=pieces()), 411)
    for length in ("x", "-1", "1e3", "9" * 5000):
        answer = client.post("/api/runs", content=b"{}", headers={"Content-Length": length})
        line_of(answer, 413)
    assert service.jobs.all() == []
