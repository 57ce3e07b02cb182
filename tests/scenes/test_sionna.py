"""Scenes of Sionna RT: what they need, what they look like, and what is traced in them.

Tests that trace skip where Sionna RT or an LLVM for it is missing; the others run everywhere.
"""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import veilmap as vm
from refusals import refused
from veilmap.errors import ConfigurationError, DataError, MissingExtraError
from veilmap.scenes.sionna import trial

pytestmark = pytest.mark.xdist_group("sionna")

# A building of 40 m × 30 m × 20 m around (0, 0) on ground of 400 m × 400 m at z = 5.
BOX = """<scene version="3.0.0">
  <bsdf type="itu-radio-material" id="concrete"><string name="type" value="concrete"/></bsdf>
  <shape type="rectangle" id="ground">
    <transform name="to_world"><scale value="200"/><translate z="5"/></transform>
    <ref id="concrete" name="bsdf"/>
  </shape>
  <shape type="cube" id="house">
    <transform name="to_world"><scale x="20" y="15" z="10"/><translate z="15"/></transform>
    <ref id="concrete" name="bsdf"/>
  </shape>
</scene>"""
EXTENT = (-60.0, 60.0, -45.0, 45.0)
WEST, EAST = [-45.0, 0.0, 10.0], [45.0, 0.0, 10.0]
FREQUENCY = 3.5e9


def friis(distance):
    """Gain in dB between isotropic antennas in free space."""
    return 20 * np.log10(299_792_458 / FREQUENCY / (4 * np.pi * distance))


@pytest.fixture
def found(monkeypatch):
    """Sionna RT is there, as far as anybody looks."""
    monkeypatch.setattr(trial, "require", lambda *_: None)
    trial._problem.cache_clear()
    yield
    trial._problem.cache_clear()


@pytest.fixture(scope="module")
def box_file(tmp_path_factory):
    try:
        trial.check()
    except vm.VeilmapError as error:
        pytest.skip(str(error))
    file = tmp_path_factory.mktemp("sionna") / "box.xml"
    file.write_text(BOX)
    return file


@pytest.fixture(scope="module")
def scene(box_file):
    return vm.Scene.from_sionna(box_file, [WEST, EAST], cell_size=5.0, extent=EXTENT)


# ---- What it needs


def test_without_sionna_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr("veilmap._util.extras.importlib.util.find_spec", lambda name: None)
    with refused(MissingExtraError, "sionna", "'veilmap[sionna]'", extra="sionna"):
        vm.Scene.from_sionna("munich", [[0, 0, 50]])


@pytest.mark.parametrize(
    ("program", "named"),
    [
        (
            "import os; print('LLVM 15 0 6', flush=True); os.abort()",
            ["LLVM 17", "LLVM 15.0.6", "DRJIT_LIBLLVM_PATH"],
        ),
        ("raise ImportError('the LLVM backend is inactive')", ["LLVM 17", "DRJIT_LIBLLVM_PATH"]),
        (
            "import os; print('LLVM 19 1 7', flush=True); os.abort()",
            ["LLVM 19.1.7", "code -6"],
        ),
        ("raise OSError('disk is full')", ["OSError: disk is full"]),
    ],
)
def test_a_trial_that_fails_is_one_line(found, monkeypatch, program, named):
    monkeypatch.setattr(trial, "_PROGRAM", program)
    with refused(DataError, *named):
        vm.Scene.from_sionna("munich", [[0, 0, 50]])


def test_the_library_that_was_named_is_in_the_message(found, monkeypatch):
    monkeypatch.setenv("DRJIT_LIBLLVM_PATH", "/opt/libLLVM-14.so")
    monkeypatch.setattr(trial, "_PROGRAM", "print('LLVM 14 0 6'); raise SystemExit(1)")
    with refused(DataError, "LLVM 14.0.6", "/opt/libLLVM-14.so"):
        trial.check()


def test_a_process_tries_once_a_library(found, monkeypatch, tmp_path):
    log = tmp_path / "log"
    monkeypatch.setattr(trial, "_PROGRAM", f"open({str(log)!r}, 'a').write('x')")
    for library in ("a", "a", "b", "a"):
        monkeypatch.setenv("DRJIT_LIBLLVM_PATH", library)
        trial.check()
    assert log.read_text() == "xx"


def test_veilmap_alone_imports_none_of_it():
    program = (
        "import sys, veilmap, veilmap.scenes.sionna; veilmap.Scene.synthetic(0).heights;"
        "print({'sionna', 'mitsuba', 'drjit'} & set(sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "set()"


def test_other_scenes_cannot_be_traced():
    with refused(ConfigurationError, "Scene.from_sionna"):
        vm.Scene.synthetic(0).trace(users=2)


# ---- What it looks like


def test_heights_are_right_to_a_cell(scene):
    x, y = np.meshgrid(scene.grid.x, scene.grid.y)
    expected = np.where((np.abs(x) < 20) & (np.abs(y) < 15), 20.0, 0.0)
    np.testing.assert_allclose(scene.heights, expected, atol=1e-4)
    assert scene.grid.extent == EXTENT
    assert (scene.heights > 0).sum() == 8 * 6


def test_the_whole_scene_is_the_default(box_file):
    whole = vm.Scene.from_sionna(box_file, [WEST], cell_size=10.0)
    assert whole.grid.extent == (-200.0, 200.0, -200.0, 200.0)
    assert whole.heights.max() == pytest.approx(20.0, abs=1e-4)


def test_lines_of_sight_meet_the_meshes(scene):
    links = [
        (WEST, EAST, False),
        ([-59.0, 0.0, 1.5], [25.0, 0.0, 1.5], False),  # the house is nearer to the end
        ([-59.0, 0.0, 1.5], [-21.0, 0.0, 1.5], True),  # and here behind it
        ([-45.0, 0.0, 30.0], [45.0, 0.0, 30.0], True),
        ([-45.0, 0.0, 19.9], [45.0, 0.0, 19.9], False),
        ([-45.0, 16.0, 1.5], [45.0, 16.0, 1.5], True),
        ([-45.0, 14.0, 1.5], [45.0, 14.0, 1.5], False),
    ]
    user, bs, clear = (list(column) for column in zip(*links, strict=True))
    assert scene.line_of_sight(user, bs).tolist() == clear


def test_it_can_be_measured_by_laws_too(scene):
    data = scene.measure(users=50, links_per_user=2, noise_db=0.0, seed=0)
    clear = scene.line_of_sight(data.user_xyz, data.bs_xyz)
    assert 0 < clear.sum() < len(data)
    np.testing.assert_array_equal(data.gain_db, scene.gain(data.user_xyz, data.bs_xyz))


@pytest.mark.parametrize(
    ("change", "kind", "named"),
    [
        ({"source": "atlantis"}, DataError, ["atlantis", "munich"]),
        ({"source": "atlantis.xml"}, DataError, ["atlantis.xml"]),
        ({"base_stations": [[0, 0, 10]]}, ConfigurationError, ["base station 0"]),
        ({"extent": (10, -10, 0, 5)}, ConfigurationError, ["extent"]),
        ({"extent": (10, 20)}, ConfigurationError, ["extent"]),
        ({"extent": (1e4, 2e4, 1e4, 2e4), "cell_size": 100.0}, DataError, ["box.xml", "extent"]),
    ],
)
def test_what_cannot_be_made_is_one_line(box_file, change, kind, named):
    options = {"source": box_file, "base_stations": [WEST], "extent": EXTENT} | change
    with refused(kind, *named):
        vm.Scene.from_sionna(**options)


@pytest.mark.parametrize(
    "text", ["<scene", BOX.replace("concrete</", "</"), BOX.replace("itu-", "")]
)
def test_a_broken_file_is_one_line(box_file, tmp_path, text):
    (tmp_path / "a.xml").write_text(text.replace('value="concrete"', 'value="cheese"'))
    with refused(DataError, tmp_path / "a.xml", "Sionna RT"):
        vm.Scene.from_sionna(tmp_path / "a.xml", [WEST])


def test_a_rectangle_that_sionna_does_not_take_is_named(box_file, tmp_path):
    second = '<bsdf type="itu-radio-material" id="b"><string name="type" value="brick"/></bsdf>'
    own = BOX.replace("</bsdf>", f"</bsdf>{second}").replace('ref id="concrete"', 'ref id="b"', 1)
    (tmp_path / "a.xml").write_text(own)
    with refused(DataError, tmp_path / "a.xml", "rectangle"):
        vm.Scene.from_sionna(tmp_path / "a.xml", [WEST])


def test_meshes_and_buildings_do_not_mix(scene):
    with refused(ConfigurationError, "buildings", "meshes"):
        replace(scene, buildings=vm.Scene.synthetic(0).buildings)


def test_terrain_is_refused(box_file, tmp_path):
    slope = BOX.replace('<scale value="200"/>', '<scale value="200"/><rotate y="1" angle="10"/>')
    (tmp_path / "slope.xml").write_text(slope)
    with refused(DataError, "slope.xml", "ground", "extent"):
        vm.Scene.from_sionna(tmp_path / "slope.xml", [[-45.0, 0.0, 40.0]], extent=EXTENT)


# ---- What is traced


def test_free_space_is_friis_and_the_ground_adds_at_most_as_much(scene):
    user = [[-45.0, 20.0, 1.5], [-30.0, -20.0, 1.5]]
    alone = scene.trace(user, max_depth=0, seed=0)
    to_west = alone.bs == 0
    np.testing.assert_array_equal(alone.user[to_west], [0, 1])
    distance = np.linalg.norm(alone.user_xyz - alone.bs_xyz, axis=1)
    np.testing.assert_allclose(alone.gain_db, friis(distance), atol=0.01)
    with_ground = scene.trace(user, max_depth=1, seed=0)
    more = with_ground.gain_db[with_ground.bs == 0] - alone.gain_db[to_west]
    assert ((more > 0.01) & (more < 3.1)).all()


def test_a_blocked_link_gets_round_one_corner_and_is_weaker(scene):
    user = np.array([0.0, 20.0, 1.5])  # north of the house; its eastern corner hides EAST
    assert not scene.line_of_sight(user, EAST)
    data = scene.trace([user], seed=0)
    (gain,) = data.gain_db[data.bs == 1]
    free = friis(np.linalg.norm(EAST - user))
    assert free - 60 < gain < free - 10


def test_nothing_goes_through_the_house(scene):
    data = scene.trace([[-45.0, 5.0, 1.5]], seed=0)
    assert data.bs.tolist() == [0]  # two corners lie on every way to EAST


def test_links_without_a_path_are_counted(scene):
    users = [[-45.0, 5.0, 1.5], [45.0, 5.0, 1.5]]
    data = scene.trace(users, max_depth=0, seed=0)
    assert list(zip(data.user.tolist(), data.bs.tolist(), strict=True)) == [(0, 0), (1, 1)]
    (lost,) = data.dropped
    assert lost.reason == "no path was found"
    assert lost.rows.tolist() == [1, 2]
    with refused(ConfigurationError, "1 links", "max_depth"):
        replace(scene, base_stations=[EAST]).trace(users[:1], max_depth=0, seed=0)


def test_users_are_outdoors_and_the_same_seed_gives_the_same_bits(scene):
    first, again, other = (scene.trace(12, samples=20_000, seed=seed) for seed in (3, 3, 4))
    x, y, z = first.user_xyz.T
    assert not ((np.abs(x) <= 20) & (np.abs(y) <= 15)).any()
    assert scene.grid.contains(first.user_xyz[:, :2]).all()
    assert (z == 1.5).all()
    for name in ("user", "user_xyz", "bs", "gain_db"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert not np.array_equal(first.user_xyz[:5], other.user_xyz[:5])


def test_gains_of_a_link_do_not_depend_on_what_else_is_traced(scene, monkeypatch):
    users = [[-45.0, 20.0, 1.5], [30.0, -20.0, 1.5]]
    both = scene.trace(users, samples=20_000, seed=5)
    alone = scene.trace(users[1:], samples=20_000, seed=5)
    np.testing.assert_array_equal(both.of_user(1).gain_db, alone.gain_db)
    monkeypatch.setattr("veilmap.scenes.sionna.meshes._MOST_TARGETED", 20_000)
    in_parts = scene.trace(users, samples=20_000, seed=5)
    np.testing.assert_array_equal(both.gain_db, in_parts.gain_db)


@pytest.mark.parametrize(
    ("change", "kind", "named"),
    [
        ({"users": [[0.0, 0.0, 1.5]]}, ConfigurationError, "user 0"),
        ({"users": 0}, ConfigurationError, "users"),
        ({"frequency": 1.0}, DataError, "1 Hz"),
        ({"max_depth": -1}, ConfigurationError, "max_depth"),
    ],
)
def test_what_cannot_be_traced_is_one_line(scene, change, kind, named):
    with refused(kind, named):
        scene.trace(**({"users": 1, "seed": 0} | change))
