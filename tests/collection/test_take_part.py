"""The page on which a phone takes part, in a real browser, against two real aggregators."""

import base64
import hashlib
import json
import struct
import time
from pathlib import Path

import numpy as np
import pytest

import veilmap as vm
from aggregators import deployed, new_keys, small_survey, small_task
from browsers import chromium
from take_part import LAPTOP, PHONE, Participant, town, walk
from veilmap._util.plain import to_plain
from veilmap.collection import report as reports
from veilmap.collection import shares
from veilmap.collection.admission import Invitations, ProofOfWork
from veilmap.collection.pine import reports as proven
from veilmap.collection.pine.choosing import chosen
from veilmap.collection.pine.parameters import NormProofs
from veilmap.collection.pine.sharding import helper_measurement
from veilmap.collection.task import Task
from veilmap.surveys.contribution import CIRCLE, contribution

pytestmark = pytest.mark.xdist_group("take-part")

HERE = Path(__file__).parent
VECTORS = json.loads((HERE / "vectors.json").read_text(encoding="utf-8"))
HEAD = "bs,gain_db,latitude,longitude"
SURVEY_VECTORS = json.loads((HERE.parent / "surveys" / "vectors.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def open_to_all(tmp_path_factory):
    folder = tmp_path_factory.mktemp("open")
    with deployed(folder, survey=town(), admission=ProofOfWork(12)) as both:
        yield both


@pytest.fixture(scope="module")
def by_invitation(tmp_path_factory):
    """This survey asks for proofs, and `open_to_all` does not."""
    folder = tmp_path_factory.mktemp("invited")
    with deployed(folder, survey=town(), invitations=True, proofs=True) as both:
        yield both


@pytest.fixture(scope="module")
def modules(browser, open_to_all):
    """Runs JavaScript that imports the page's modules."""
    visit = Participant(browser, page_of(open_to_all))

    def run(name, body, given=None):
        source = (
            f'async (given) => {{ const own = await import("/page/take_part/{name}"); {body} }}'
        )
        return visit.page.evaluate(source, given)

    yield run
    visit.close()


@pytest.fixture
def someone(browser):
    """Opens the page for somebody, as `Participant` does."""
    visits = []

    def come(address, **options):
        visits.append(Participant(browser, address, **options))
        return visits[-1]

    yield come
    for visit in visits:
        visit.close()


def page_of(both, code=""):
    return f"{both.address('leader')}/take-part{code and '#' + code}"


def added(both, count):
    """Whether leader and helper come to have added so many reports."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if [one.standing().added for one in (both.leader, both.helper)] == [count, count]:
            return True
        time.sleep(0.05)
    return False


def ids(both):
    return {one.hex() for one in stored(both.leader)} & {one.hex() for one in stored(both.helper)}


def stored(aggregator):
    """The ids of reports that an aggregator has added."""
    import sqlalchemy as sa

    with aggregator.store._engine.connect() as now:
        return [
            bytes(one)
            for one in now.execute(sa.text("SELECT id FROM reports WHERE state=1")).scalars()
        ]


# ---- the modules, against Python


def plain_survey(survey):
    return json.loads(json.dumps(to_plain(survey)))


CONTRIBUTE = """
  return given.map(({ survey, x, y, bs, gain }) => {
    const [east, north, gains] = [x, y, gain].map((column) => Float64Array.from(column));
    const { vector, fates } = own.contribution(survey, { x: east, y: north, gain: gains, bs });
    const entries = [...vector.entries()].filter(([, value]) => value !== 0);
    const counts = {};
    for (const fate of fates) counts[fate] = (counts[fate] ?? 0) + 1;
    return { length: vector.length, entries, counts };
  });
"""


def test_the_circle_is_the_same(modules):
    assert modules("contribution.js", "return own.CIRCLE.flat()") == CIRCLE.ravel().tolist()


def test_published_contributions_are_reproduced(modules):
    given = [
        {
            "survey": one["survey"], "bs": one["readings"]["bs"],
            "gain": one["readings"]["gain_db"],
            "x": [x for x, _ in one["readings"]["xy"]], "y": [y for _, y in one["readings"]["xy"]],
        }
        for one in SURVEY_VECTORS
    ]  # fmt: skip
    for found, one in zip(
        modules("contribution.js", CONTRIBUTE, given), SURVEY_VECTORS, strict=True
    ):
        assert {str(number): value for number, value in found["entries"]} == one["contribution"]


def random_survey(rng):
    rows, columns = (int(n) for n in rng.integers(1, 9, 2))
    grid = vm.Grid(
        float(rng.uniform(5, 90)), (rows, columns), tuple(rng.uniform(-5e5, 5e5, 2).tolist())
    )
    west, east, south, north = grid.extent
    stations = []
    for number in range(int(rng.integers(1, 6))):
        azimuth = None if rng.random() < 0.4 else float(rng.uniform(-400, 400))
        width = None if azimuth is None or rng.random() < 0.3 else float(rng.uniform(20, 360))
        stations.append(
            vm.Station(
                str(number), float(rng.uniform(west - 50, east + 50)),
                float(rng.uniform(south - 50, north + 50)), float(rng.uniform(1, 60)),
                azimuth_deg=azimuth, beam_width_deg=width,
            )
        )  # fmt: skip
    return vm.Survey(
        "random", grid, tuple(stations), participants=10, epsilon=2.0, delta=1e-6,
        range_db=float(rng.uniform(20, 120)), level_weight=float(rng.uniform(0.05, 1)),
        clip=int(rng.integers(16, 5000)),
    )  # fmt: skip


def random_readings(rng, survey):
    west, east, south, north = survey.grid.extent
    count = int(rng.integers(0, 60))
    xy = rng.uniform((west - 20, south - 20), (east + 20, north + 20), (count, 2))
    corners = rng.random(count) < 0.1  # exactly on edges and centres
    xy[corners] = rng.choice([west, east], corners.sum())[:, None] * (1, 0) + (0, south)
    for one in survey.stations[: count // 8]:
        xy[int(rng.integers(count))] = one.x + 0.3, one.y
    gain = rng.normal(-90, 30, count)
    gain[rng.random(count) < 0.05] = rng.choice([np.nan, np.inf, 1e4])
    xy[rng.random(count) < 0.03] = np.nan
    names = rng.choice([*(one.id for one in survey.stations), "00", " "], count)
    return xy, names, gain


def test_random_contributions_are_the_same_number_for_number(modules):
    rng = np.random.default_rng(7)
    surveys = [random_survey(rng) for _ in range(400)]
    readings = [random_readings(rng, survey) for survey in surveys]
    given = [
        {
            "survey": plain_survey(survey), "x": xy[:, 0].tolist(), "y": xy[:, 1].tolist(),
            "bs": bs.tolist(), "gain": gain.tolist(),
        }
        for survey, (xy, bs, gain) in zip(surveys, readings, strict=True)
    ]  # fmt: skip
    results = modules("contribution.js", CONTRIBUTE, given)
    for found, survey, (xy, bs, gain) in zip(results, surveys, readings, strict=True):
        wanted = contribution(survey, xy, bs, gain)
        vector = np.zeros(found["length"], dtype=np.int64)
        for number, value in found["entries"]:
            vector[number] = value
        assert vector.tolist() == wanted.vector.tolist()
        for fate in ("used", "outside", "unknown", "unusable"):
            assert found["counts"].get(fate, 0) == getattr(wanted, fate)


def test_projection_is_pyprojs_to_a_millimetre(modules):
    pyproj = pytest.importorskip("pyproj")
    rng = np.random.default_rng(0)
    for crs, zone, low, high in (
        ("EPSG:32633", 33, 0, 84),
        ("EPSG:32719", 19, -80, 0),
        ("EPSG:32660", 60, 0, 84),
    ):
        middle = 6 * zone - 183
        latitude = rng.uniform(low, high, 500)
        longitude = middle + rng.uniform(-3, 3, 500)
        to = pyproj.Transformer.from_crs("EPSG:4326", crs, always_xy=True)
        wanted = np.column_stack(to.transform(longitude, latitude))
        run = (
            "const zone = own.utmZone(given.crs);"
            " return given.at.map(([a, o]) => own.toMetres(zone, a, o));"
        )
        given = {"crs": crs, "at": np.column_stack([latitude, longitude]).tolist()}
        found = np.array(modules("projection.js", run, given))
        assert np.abs(found - wanted).max() < 1e-3


@pytest.mark.parametrize("crs", [None, "EPSG:25832", "EPSG:32600", "EPSG:32661", "EPSG:3263"])
def test_other_systems_are_no_utm_zone(modules, crs):
    assert modules("projection.js", "return own.utmZone(given)", crs) is None


SHARES = """
  const { fromHex, toHex, sha256 } = await import("/page/take_part/bytes.js");
  const digest = await sha256(new TextEncoder().encode(given.task));
  const vector = new Int32Array(given.numbers);
  for (const [number, value] of Object.entries(given.vector)) vector[number] = value;
  const made = await own.shared(vector, digest, fromHex(given.report), fromHex(given.secret));
  const credential = fromHex(given.credential);
  return {
    first: [...made.elements.slice(0, 8)],
    leader: toHex(own.half(made, "leader", credential)),
    helper: toHex(own.half(made, "helper", credential)),
  };
"""


@pytest.mark.parametrize("one", VECTORS, ids=lambda own: own["name"])
def test_published_halves_are_reproduced(modules, one):
    task = Task.parse(one["task"].encode(), "vectors.json")
    found = modules("report.js", SHARES, one | {"numbers": task.survey.numbers})
    assert found["first"] == one["first_elements"]
    assert found["leader"] == one["leader_half"]
    assert found["helper"] == one["helper_half"]


@pytest.mark.parametrize("one", VECTORS, ids=lambda own: own["name"])
def test_python_reproduces_published_halves(one):
    assert (
        vector_of(
            **{
                name: one[name]
                for name in ("name", "task", "vector", "report", "secret", "credential")
            }
        )
        == one
    )
    task = Task.parse(one["task"].encode(), "vectors.json")
    for role in ("leader", "helper"):
        half = reports.parsed(bytes.fromhex(one[f"{role}_half"]), task, role)
        assert half.id.hex() == one["report"]


def vector_of(name, task, vector, report, secret, credential):
    """What vectors.json says of a report."""
    parsed = Task.parse(task.encode(), "vectors.json")
    numbers = np.zeros(parsed.survey.numbers, dtype=np.int64)
    for number, value in vector.items():
        numbers[int(number)] = value
    leader, helper = reports.halves(
        parsed, numbers, bytes.fromhex(report), bytes.fromhex(credential), bytes.fromhex(secret)
    )
    return {
        "name": name, "task": task, "vector": vector, "report": report, "secret": secret,
        "credential": credential, "leader_half": leader.content.hex(),
        "helper_half": helper.content.hex(),
        "first_elements": reports.elements_of(parsed, leader.share)[:8].tolist(),
    }  # fmt: skip


PROVE = """
  const { fromHex, toHex } = await import("/page/take_part/bytes.js");
  const vector = Int32Array.from(given.vector);
  const began = performance.now();
  const made = await own.proven(given.proofs, vector, ...given.about.map(fromHex));
  const seconds = (performance.now() - began) / 1000;
  return {
    halves: [toHex(made.leader), toHex(made.helper)],
    lengths: ["leader", "helper"].map((role) => own.shareBytes(given.proofs, role)),
    first: [...made.elements.slice(0, 8)],
    seconds,
  };
"""


def prove(modules, parameters, own, *about):
    """Shares with proofs that the page makes: of task, report and secret."""
    given = {"proofs": to_plain(parameters), "vector": own.tolist()}
    return modules("proofs.js", PROVE, given | {"about": [one.hex() for one in about]})


def test_published_proofs_are_reproduced(modules):
    known = json.loads((HERE / "pine" / "vector.json").read_text(encoding="utf-8"))
    about = [bytes.fromhex(known[name]) for name in ("digest", "report", "secret")]
    found = prove(modules, NormProofs(**known["parameters"]), np.array(known["vector"]), *about)
    assert found["halves"] == known["halves"]
    assert [2 * length for length in found["lengths"]] == [len(one) for one in known["halves"]]


@pytest.mark.parametrize("parameters", [
    chosen(1, 16), chosen(83, 1024), chosen(500, 37_000), chosen(3000, 1024),
    NormProofs(64, 64, 0.9, 8, 7, 2, 2, 8, 8),  # a check in six fails, and clients try again
], ids=lambda one: f"{one.dimension} within {one.bound}")  # fmt: skip
def test_proofs_are_the_same_as_in_python(modules, parameters):
    """Of dense vectors of either sign, as long as may be."""
    rng = np.random.default_rng(parameters.dimension)
    for number in range(3):
        direction = rng.normal(size=parameters.dimension)
        direction *= 0.999 * parameters.bound / np.linalg.norm(direction)
        own = np.trunc(direction).astype(np.int64)
        about = [hashlib.sha256(bytes([number, one])).digest() for one in range(3)]
        about[1] = about[1][:16]
        found = prove(modules, parameters, own, *about)
        halves = proven.prove(parameters, own, *about)
        assert found["halves"] == [half.hex() for half in halves]
        assert found["first"] == proven.elements_of(parameters, halves[0])[:8].tolist()


def test_long_masks_are_the_same(modules):
    """Over several chunks of the stream, and over words that are no elements."""
    seed, digest, report = bytes(range(32)), bytes(range(1, 33)), bytes(range(16))
    count = 700_001
    run = """
      const { fromHex, toHex, sha256 } = await import("/page/take_part/bytes.js");
      const [seed, digest, report] = given.parts.map(fromHex);
      const elements = await own.expanded(seed, digest, report, given.count);
      return toHex(await sha256(own.toBytes(elements)));
    """
    given = {"parts": [part.hex() for part in (seed, digest, report)], "count": count}
    wanted = shares.to_bytes(shares.expanded(seed, digest, report, count))
    assert modules("shares.js", run, given) == hashlib.sha256(wanted).hexdigest()


def test_shares_are_the_same_for_the_same_vector_alone(modules):
    """So that a report that is made again is the same, and no two vectors have the same mask."""
    run = """
      const { toHex, random } = await import("/page/take_part/bytes.js");
      const [secret, digest, id] = [random(32), random(32), random(16)];
      const made = [];
      for (const v of [[1, -2, 3], [1, -2, 3], [1, 2, 3], [1, -2, 4]])
        made.push(await own.shared(Int32Array.from(v), digest, id, secret));
      made.push(await own.shared(Int32Array.from([1, -2, 3]), digest, id, random(32)));
      return made.map(({ leader, helper }) => [toHex(leader.slice(0, 32)), toHex(helper)]);
    """
    first, again, *others = modules("report.js", run)
    assert first == again
    for number in (0, 1):
        assert len({first[number], *(one[number] for one in others)}) == 4
    assert first[0] != first[1]


@pytest.mark.parametrize("bits", [1, 8, 17])
def test_work_is_what_python_accepts(modules, bits):
    digest, report = bytes(range(32)), bytes(range(16))
    run = """
      const { fromHex, toHex } = await import("/page/take_part/bytes.js");
      return toHex(await own.solved(given.bits, fromHex(given.digest), fromHex(given.report)));
    """
    given = {"bits": bits, "digest": digest.hex(), "report": report.hex()}
    found = bytes.fromhex(modules("work.js", run, given))
    work = ProofOfWork(bits)
    assert work.admits(found, digest, report)
    assert found == work.solved(digest, report)


def test_tokens_are_what_python_accepts(modules):
    issuer = new_keys().issuer
    digest, report = bytes(range(32)), bytes(range(16))
    begin = """
      const { fromHex, toHex } = await import("/page/take_part/bytes.js");
      const [digest, report] = [fromHex(given.digest), fromHex(given.report)];
      const { message, inverse } = await own.blinded(given.key, digest, report);
      return { message: toHex(message), inverse: inverse.toString(16) };
    """
    end = """
      const { fromHex, toHex } = await import("/page/take_part/bytes.js");
      const token = { message: fromHex(given.message), inverse: BigInt("0x" + given.inverse) };
      const credential = own.finished(given.key, token, fromHex(given.signature));
      const good = (id) => own.isGood(given.key, credential, fromHex(given.digest), fromHex(id));
      return [toHex(credential), await good(given.report), await good("00".repeat(16))];
    """
    given = {"key": issuer.public.key, "digest": digest.hex(), "report": report.hex()}
    hidden = [modules("tokens.js", begin, given) for _ in range(2)]
    assert hidden[0]["message"] != hidden[1]["message"]  # random salt and blinding
    for one in hidden:
        signature = issuer.signed(bytes.fromhex(one["message"])).hex()
        credential, good, other = modules("tokens.js", end, given | one | {"signature": signature})
        assert (good, other) == (True, False)
        assert issuer.public.admits(bytes.fromhex(credential), digest, report)


# ---- tables

READ = """
  const { measured } = await import("/page/take_part/readings.js");
  try {
    const table = own.parseTable(given.text, "t.csv");
    const found = measured(table, given.survey, "t.csv");
    const { x, y, bs, gain, lines } = found.of(given.user ?? found.users[0].id);
    return { x: [...x], y: [...y], bs, gain: [...gain], lines, users: found.users };
  } catch (problem) {
    return { problem: problem.message };
  }
"""


def read(modules, text, survey=None, user=None):
    given = {"text": text, "survey": plain_survey(survey or small_survey()), "user": user}
    return modules("table.js", READ, given)


@pytest.mark.parametrize(
    "text",
    [
        "bs,gain_db,user_x,user_y\n007,-90.5,1100,2100.25\nnorth,-80,1200,2200\n",
        "BS, gain ,user_x,user_y\r\n007,-90.5,1100,2100.25\r\n\r\nnorth,-80,1200,2200",
        'bs;gain_db;user_x;user_y\n"007";-90,5;1100;2100,25\n"north";-8e1;1200;2200\n',
        "note\tbs\tgain_db\tuser_x\tuser_y\n\t007\t-90.5\t1100\t2100.25\n"
        "a,b\tnorth\t-80\t1200\t2200\n",
        'bs,gain_db,user_x,user_y,"a ""note"", long"\n007,-90.5,1100,2100.25,"1\n2"\n'
        "north,-80,1200,2200,\n",
    ],
    ids=["comma", "crlf", "semicolon", "tab", "quotes"],
)
def test_tables_of_many_programs_are_read(modules, text):
    found = read(modules, text)
    assert found["bs"] == ["007", "north"]
    assert (found["x"], found["y"]) == ([1100, 1200], [2100.25, 2200])
    assert found["gain"] == [-90.5, -80]


def test_lines_are_told_as_an_editor_counts_them(modules):
    found = read(modules, 'bs,gain_db,user_x,user_y\n\n"a\nb",1,2,3\nc,,2,x\n')
    assert found["lines"] == [3, 5]
    assert np.isnan(found["gain"][1])
    assert np.isnan(found["y"][1])


def test_readings_of_one_of_several_people(modules):
    text = (
        "user,bs,gain_db,user_x,user_y\n1,7,-90,1100,2100\n01,7,-80,1200,2100\n1,7,-70,1300,2100\n"
    )
    found = read(modules, text, user="1")
    assert found["users"] == [{"id": "1", "rows": 2}, {"id": "01", "rows": 1}]
    assert found["x"] == [1100, 1300]


@pytest.mark.parametrize(
    ("text", "crs", "told"),
    [
        ("", None, "t.csv is empty"),
        ("bs,gain_db,user_x,user_y\n", None, "no rows"),
        ("gain_db,user_x,user_y\n1,2,3\n", None, "no column “bs”"),
        ("bs,user_x,user_y\n1,2,3\n", None, "no column “gain_db”"),
        ("bs,gain_db,user_x\n1,2,3\n", None, "latitude and longitude, or user_x and user_y"),
        ("bs,bs,gain_db,user_x,user_y\n1,1,2,3,4\n", None, "two columns “bs”"),
        ("bs,gain_db,user_x,user_y\n1,2,3,4\n1,2,3\n", None, "line 3: there are 3 values"),
        ('bs,gain_db,user_x,user_y\n1,2,3,4\n1,"2,3,4\n', None, "line 3: a quotation mark"),
        ("bs,gain_db,latitude,longitude\n1,2,3,4\n", None, "the survey’s own plane"),
        ("bs,gain_db,latitude,longitude\n1,2,3,4\n", "EPSG:25832", "veilmap contribute"),
    ],
)  # fmt: skip
def test_problems_of_a_table_are_one_line(modules, text, crs, told):
    found = read(modules, text, small_survey(crs=crs))
    assert told in found["problem"]
    assert "\n" not in found["problem"]


# ---- all of it


def tells(asked, own, survey):
    """Whether any request holds a number of the file, or of the vector."""
    numbers = {repr(float(value)) for value in np.abs(own.degrees).ravel()}
    numbers |= {f"{abs(value):.2f}" for value in own.gain} | {
        f"{value:.1f}" for value in own.xy.ravel()
    }
    numbers |= {name for name in numbers if len(name) > 4}
    vector = own.vector(survey)
    used = np.flatnonzero(vector)
    plain = [vector.astype("<i4").tobytes(), vector.astype("<i4")[used].tobytes()]
    plain += [vector.astype(">i4").tobytes(), (vector % shares.PRIME).astype("<u4").tobytes()]
    # Doubles, and texts in which numbers could hide.
    plain += [struct.pack(order + "d", value) for value in own.degrees.ravel() for order in "<>"]
    for one in asked:
        hidden = [one.everything, base64.b64encode(one.body).decode()]
        if any(number in text for number in numbers if "." in number for text in hidden):
            return one.url
        if any(part in one.body for part in plain):
            return one.url
    return None


@pytest.mark.parametrize("size", [PHONE, LAPTOP], ids=["phone", "laptop"])
@pytest.mark.parametrize("kind", ["open", "invitation"])
def test_a_report_is_taken_by_both(someone, open_to_all, by_invitation, kind, size):
    both = by_invitation if kind == "invitation" else open_to_all
    code = f"code of {size[0]} & co"
    if kind == "invitation":
        both.leader.store.invite([code])
    before, known = both.leader.standing().added, ids(both)
    visit = someone(
        page_of(both, code.replace(" ", "%20") if kind == "invitation" else ""), size=size
    )
    name = f"take-part-{kind}-{size[0]}"
    visit.picture(f"{name}-begin", full_page=True)
    own = walk(both.task.survey, seed=size[0])
    visit.choose(own.csv())
    visit.at("seed").wait_for()
    counts = contribution(both.task.survey, own.xy, own.bs, own.gain)
    for fate in ("used", "outside", "unknown", "unusable"):
        assert visit.count(fate) == getattr(counts, fate)
    assert not visit.overflows()
    visit.picture(f"{name}-ready", full_page=True)
    seed = visit.at("seed").inner_text()
    visit.take_part()
    visit.picture(f"{name}-done", full_page=True)
    assert added(both, before + 1)
    with visit.page.expect_download() as download:
        visit.at("download").click()
    receipt = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert ids(both) - known == {receipt["id"]}
    check_receipt(both, receipt)
    check_requests(both, visit, own, receipt, seed, code)
    assert visit.problems == []


def check_receipt(both, receipt):
    from veilmap.collection.aggregator import receipt_text
    from veilmap.collection.keys import is_signed

    assert receipt.keys() == {"task", "id", "hashes", "receipts", "sent"}
    assert receipt["task"] == both.task.digest
    for role in ("leader", "helper"):
        text = receipt_text(
            both.task, role, bytes.fromhex(receipt["id"]), bytes.fromhex(receipt["hashes"])
        )
        assert is_signed(both.task.key(role), "receipt", text, receipt["receipts"][role])


def check_requests(both, visit, own, receipt, seed, code):
    """What left the device: two halves of fixed size, perhaps a blinded token, and nothing else."""
    task, invited = both.task, isinstance(both.task.admission, Invitations)
    assert tells(visit.asked, own, task.survey) is None
    assert {one.method for one in visit.asked} <= {"GET", "POST", "OPTIONS"}
    sent = {one.url: one for one in visit.posts}
    wanted = {both.address("leader", "reports"), both.address("helper", "reports")}
    wanted |= {both.address("leader", "tokens")} if invited else set()
    assert set(sent) == wanted
    assert len(visit.posts) == len(wanted)
    for role in ("leader", "helper"):
        body = sent[both.address(role, "reports")].body
        assert len(body) == reports.half_bytes(task, role)
        half = reports.parsed(body, task, role)
        assert half.id.hex() == receipt["id"]
    # Taken together the halves are the file's contribution; each is nothing of it alone.
    leader = reports.parsed(sent[both.address("leader", "reports")].body, task, "leader")
    helper = reports.parsed(sent[both.address("helper", "reports")].body, task, "helper")
    assert helper.share.hex() == seed
    mask = mask_of(task, helper)
    opened = shares.centred(shares.added(reports.elements_of(task, leader.share), mask))
    assert opened.tolist() == own.vector(task.survey).tolist()
    elements = reports.elements_of(task, leader.share).astype(float) / shares.PRIME
    assert np.abs(np.sort(elements) - (np.arange(len(elements)) + 0.5) / len(elements)).max() < 0.03
    for one in visit.asked:
        if not one.url.startswith("blob:"):
            assert one.url.startswith((task.leader, task.helper))
        assert (seed in one.everything) is False
        assert (helper.share in one.body) == (one.url == both.address("helper", "reports"))
    if invited:
        asked = json.loads(sent[both.address("leader", "tokens")].body)
        assert asked.keys() == {"code", "blinded"}
        assert asked["code"] == code
        assert len(asked["blinded"]) == 512
        assert receipt["id"] not in asked["blinded"]
        assert all(code not in one.everything for one in visit.asked if "tokens" not in one.url)


def mask_of(task, helper):
    """The helper's share of the vector."""
    if task.proofs is None:
        return shares.expanded(helper.share, task.digest_bytes, helper.id, task.survey.numbers)
    found = helper_measurement(task.proofs, helper.share[128:160])
    return found[: task.survey.numbers].astype(np.uint32)


@pytest.mark.parametrize("size", [PHONE, LAPTOP], ids=["phone", "laptop"])
def test_it_is_dark_where_the_system_is(someone, open_to_all, size):
    visit = someone(page_of(open_to_all), size=size, scheme="dark")
    visit.choose(walk(open_to_all.task.survey).csv())
    visit.at("seed").wait_for()
    visit.picture(f"take-part-dark-{size[0]}", full_page=True)
    assert visit.problems == []


def test_the_keyboard_is_enough(someone, open_to_all):
    visit = someone(page_of(open_to_all), size=LAPTOP)
    visit.choose(walk(open_to_all.task.survey, seed=4).csv())
    visit.at("seed").wait_for()
    visit.at("file").focus()
    for _ in range(10):
        visit.page.keyboard.press("Tab")
        if visit.page.evaluate("document.activeElement.dataset.testid") == "go":
            break
    visit.page.keyboard.press("Enter")
    visit.at("download").wait_for()
    assert visit.page.evaluate("document.activeElement.id") == "result"


def test_every_field_has_a_name_and_every_picture_words(someone, by_invitation):
    visit = someone(page_of(by_invitation))
    visit.choose(walk(by_invitation.task.survey).csv())
    visit.at("seed").wait_for()
    nameless = visit.page.evaluate("""() => {
      const named = (one) =>
        one.labels?.length || one.getAttribute("aria-label") || one.alt !== undefined;
      return [...document.querySelectorAll("input, select, canvas, img")]
        .filter((one) => !named(one)).map((one) => one.outerHTML);
    }""")
    assert nameless == []


def test_it_can_be_dropped(someone, open_to_all):
    visit = someone(page_of(open_to_all), size=LAPTOP)
    visit.page.evaluate(
        """(text) => {
          const data = new DataTransfer();
          data.items.add(new File([text], "walk.csv"));
          const drop = document.querySelector("[data-testid=drop]");
          const how = { dataTransfer: data, bubbles: true, cancelable: true };
          drop.dispatchEvent(new DragEvent("drop", how));
        }""",
        walk(open_to_all.task.survey).csv(),
    )
    visit.at("seed").wait_for()


def test_a_table_of_several_people_asks_whose(someone, open_to_all):
    survey = open_to_all.task.survey
    anna, bert = walk(survey, 1), walk(survey, 2, steps=40)
    visit = someone(page_of(open_to_all))
    visit.choose(anna.csv("Anna") + bert.csv("Bert <b>").partition("\n")[2])
    visit.at("user").wait_for()
    visit.picture("take-part-whose", full_page=True)
    assert not visit.at("go").is_visible()
    visit.at("user").select_option("Bert <b>")
    visit.at("seed").wait_for()
    assert sum(visit.count(fate) for fate in ("used", "outside", "unknown", "unusable")) == 40


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("photo.jpg", b"\xff\xd8\xff\xe0\x00\x10JFIF", "save it as CSV"),
        ("walk.csv", "bs,gain_db\nmäst,1\n".encode("latin-1"), "UTF-8"),
        ("walk.csv", b"bs,gain_db,latitude\n1,2,3\n", "latitude and longitude"),
        ("walk.csv", f"{HEAD}\nmast-1,-90,10,10\n".encode(), "None of these readings"),
        ("walk.csv", f"{HEAD}\nmast-1,-90,10,10,\n".encode("utf-16"), "line 2"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_told_in_one_line(someone, open_to_all, name, content, told):
    visit = someone(page_of(open_to_all))
    visit.choose(content, name)
    visit.page.wait_for_selector("[data-testid=file-problem]:not(:empty)")
    assert told in visit.at("file-problem").inner_text()
    assert not visit.at("go").is_visible()
    visit.picture("take-part-wrong-file")
    visit.choose(walk(open_to_all.task.survey).csv())
    visit.at("seed").wait_for()
    assert visit.at("file-problem").inner_text() == ""
    assert visit.problems == []


def test_an_invitation_that_is_wrong_or_missing(someone, by_invitation):
    visit = someone(page_of(by_invitation))
    visit.choose(walk(by_invitation.task.survey).csv())
    visit.at("seed").wait_for()
    visit.at("go").click()
    assert "Enter the code" in visit.refused()
    visit.at("code").fill("no such code")
    visit.at("go").click()
    visit.page.get_by_text("no invitation to this survey").wait_for()
    visit.picture("take-part-wrong-invitation", full_page=True)
    by_invitation.leader.store.invite(["a good one"])
    before = by_invitation.leader.standing().added
    visit.at("code").fill("a good one")
    visit.take_part()
    assert added(by_invitation, before + 1)
    other = someone(page_of(by_invitation, "a%20good%20one"))
    other.choose(walk(by_invitation.task.survey, seed=9).csv())
    other.at("seed").wait_for()
    other.at("go").click()
    assert "used already" in other.refused()


def test_a_leader_that_signs_wrongly_is_found_out(someone, by_invitation):
    by_invitation.leader.store.invite(["signed wrongly"])

    def spoil(context):
        answer = json.dumps({"signature": "11" * 256})
        context.route("**/tokens", lambda route: route.fulfill(status=200, body=answer))

    visit = someone(page_of(by_invitation, "signed%20wrongly"), before=spoil)
    visit.choose(walk(by_invitation.task.survey).csv())
    visit.at("seed").wait_for()
    visit.at("go").click()
    assert "nothing was sent" in visit.refused()
    assert not any("reports" in one.url for one in visit.posts)


def test_a_survey_that_is_over_or_not_yet_open(someone, tmp_path):
    with deployed(tmp_path, survey=town(), closes="2026-01-02T00:00Z") as both:
        visit = someone(page_of(both))
        assert "over since 2 January 2026" in visit.at("notice").inner_text()
        assert not visit.at("drop").is_visible()
        visit.picture("take-part-over", full_page=True)
    (tmp_path / "early").mkdir()
    with deployed(tmp_path / "early", survey=town(), opens="2099-01-02T00:00Z") as both:
        visit = someone(page_of(both))
        visit.choose(walk(both.task.survey).csv())
        visit.at("seed").wait_for()
        assert visit.at("go").is_disabled()


def test_a_survey_that_ends_while_the_page_is_open(someone, tmp_path):
    with deployed(tmp_path, survey=town(), admission=ProofOfWork(1)) as both:
        visit = someone(page_of(both))
        visit.choose(walk(both.task.survey).csv())
        visit.at("seed").wait_for()
        both.leader.store.stop_collecting()
        visit.at("go").click()
        assert "over" in visit.refused()
        assert both.helper.standing().received == 0


def test_a_helper_that_does_not_answer_gets_the_same_report_later(someone, open_to_all):
    helper, tries = open_to_all.address("helper", "reports"), []

    def fail(route):
        tries.append(route.request.post_data_buffer)
        if len(tries) % 2:
            route.abort()
        else:
            route.fulfill(status=503, headers={"access-control-allow-origin": "*"}, body="{}")

    visit = someone(page_of(open_to_all), before=lambda context: context.route(helper, fail))
    before = open_to_all.helper.standing().added
    visit.page.clock.install()
    visit.choose(walk(open_to_all.task.survey, seed=11).csv())
    visit.at("seed").wait_for()
    visit.at("go").click()
    for pause in (1, 2, 4, 8):
        visit.page.get_by_text(f"trying again in {pause} s").wait_for()
        visit.page.clock.fast_forward(1000 * pause)
    assert "does not answer" in visit.refused()
    visit.picture("take-part-helper-away", full_page=True)
    assert len(tries) == 5
    visit.context.unroute(helper)
    assert visit.at("go").inner_text() == "Send the same report again"
    visit.take_part()
    sent = [one for one in visit.posts if one.url == helper]
    assert {one.body for one in sent} == {tries[0]}
    leader = open_to_all.address("leader", "reports")
    first, again = (one.body for one in visit.posts if one.url == leader)
    assert first == again
    assert added(open_to_all, before + 1)


@pytest.mark.parametrize("kind", ["open", "invitation"])
def test_after_a_reload_the_same_report_goes_on(someone, open_to_all, by_invitation, kind):
    """It counts once, although the leader had it already; other measurements do not get in."""
    both = by_invitation if kind == "invitation" else open_to_all
    address = page_of(both)
    if kind == "invitation":
        both.leader.store.invite(["reloaded"])
        address = page_of(both, "reloaded")
    own, before = walk(both.task.survey, seed=12), both.leader.standing()
    helper = both.address("helper", "reports")
    visit = someone(address, before=lambda context: context.route(helper, lambda route: None))
    visit.choose(own.csv())
    visit.at("seed").wait_for()
    visit.at("go").click()
    visit.page.get_by_text("Sending to the second").wait_for()
    first = visit.posts[-2 if kind == "invitation" else 0]
    leader = both.address("leader", "reports")
    first = next(one for one in visit.posts if one.url == leader)
    visit.page.close()
    visit.context.unroute(helper)
    visit.open_page(address)
    visit.choose(walk(both.task.survey, seed=13).csv())
    visit.at("seed").wait_for()
    visit.at("go").click()
    assert "other measurements" in visit.refused()
    refused = [one.body for one in visit.posts if one.url == leader][-1]
    # Whoever has both of them must not learn the difference of two contributions.
    halves = [reports.parsed(body, both.task, "leader") for body in (first.body, refused)]
    apart = shares.added(
        reports.elements_of(both.task, halves[0].share),
        shares.residues(-reports.elements_of(both.task, halves[1].share).astype(np.int64)),
    )
    assert np.median(np.abs(shares.centred(apart))) > 2**28
    visit.page.close()
    visit.open_page(address)
    visit.choose(own.csv())
    visit.at("seed").wait_for()
    visit.take_part()
    again = [one.body for one in visit.posts if one.url == leader][-1]
    assert again == first.body
    assert added(both, before.added + 1)
    assert both.leader.standing().received == before.received + 1
    kept = visit.page.evaluate("Object.keys(localStorage)")
    assert kept == [f"veilmap-took-part-{both.task.digest}"]
    visit.open_page(address)
    assert "sent from this browser" in visit.at("notice").inner_text()
    visit.picture("take-part-again", full_page=True)


def test_what_is_kept_holds_nothing_of_measurements(someone, by_invitation):
    by_invitation.leader.store.invite(["kept"])
    helper = by_invitation.address("helper", "reports")
    visit = someone(
        page_of(by_invitation, "kept"),
        before=lambda context: context.route(helper, lambda route: None),
    )
    visit.choose(walk(by_invitation.task.survey).csv())
    seed = visit.at("seed").inner_text()
    visit.at("go").click()
    visit.page.get_by_text("Sending to the second").wait_for()
    (kept,) = visit.page.evaluate("Object.values(localStorage)")
    assert json.loads(kept).keys() == {"id", "secret", "message", "inverse"}
    assert seed not in kept
    assert "kept" not in "".join(visit.page.evaluate("Object.keys(localStorage)")[0].split("-")[3:])


def test_a_helper_with_another_task_stops_it(someone, open_to_all):
    other = small_task(new_keys()).content.decode()

    def swap(context):
        own = {"access-control-allow-origin": open_to_all.task.leader}
        helper = f"{open_to_all.task.helper}/task"
        context.route(helper, lambda route: route.fulfill(status=200, headers=own, body=other))

    visit = someone(page_of(open_to_all), ready="problem", before=swap)
    assert "do not publish the same survey" in visit.at("notice").inner_text()
    assert not visit.at("drop").is_visible()
    visit.picture("take-part-other-task", full_page=True)


def test_a_helper_that_does_not_answer_at_first_is_named(someone, open_to_all):
    helper = f"{open_to_all.task.helper}/**"

    def away(context):
        context.route(helper, lambda route: route.abort())

    visit = someone(page_of(open_to_all), ready="problem", before=away)
    assert open_to_all.task.helper.removeprefix("http://") in visit.at("notice").inner_text()


def test_a_receipt_tells_later_whether_the_report_was_counted(someone, tmp_path):
    survey = town(participants=2, epsilon=50.0, delta=1e-3)
    with deployed(tmp_path, survey=survey, admission=ProofOfWork(1)) as both:
        receipts = []
        for seed in (1, 2):
            visit = someone(page_of(both))
            visit.choose(walk(survey, seed).csv())
            visit.at("seed").wait_for()
            visit.take_part()
            with visit.page.expect_download() as download:
                visit.at("download").click()
            receipts.append(Path(download.value.path()).read_bytes())
        assert added(both, 2)

        def answer(content):
            visit.at("receipt").set_input_files(
                {"name": "r.json", "mimeType": "application/json", "buffer": content}
            )
            visit.page.wait_for_function(
                "() => /\\.$/.test(document.querySelector('[data-testid=counted]').textContent)"
            )
            return visit.at("counted").inner_text()

        visit.page.get_by_text("Was my report counted?").click()
        assert "not been opened yet" in answer(receipts[0])
        from veilmap.collection.service import HttpPeer

        both.leader.open(HttpPeer(both.leader, both.client), early=True)
        assert answer(receipts[0]).startswith("Yes")
        strange = json.dumps(json.loads(receipts[0]) | {"id": "00" * 16}).encode()
        assert "was not counted" in answer(strange)
        assert "no receipt" in answer(b"[]")
        visit.picture("take-part-counted", full_page=True)
