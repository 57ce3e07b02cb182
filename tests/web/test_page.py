"""The page in a real browser, with a real server behind it."""

import re
import signal
import subprocess
import sys

import numpy as np
import pytest

import veilmap as vm
from browsers import Visit, chromium
from small_surveys import audit_of, audited, surveyed
from veilmap.federation.run_folder import RunFolder
from veilmap.runs.source import Source

HOSTILE = "<img src=x onerror=\"alert('run')\">"
VIEWS = ("map", "training", "sees", "tradeoff")

pytestmark = pytest.mark.xdist_group("page")


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run on a synthetic city, one whose every name is a piece of HTML, a large one, surveys."""
    folder = tmp_path_factory.mktemp("runs")
    source = Source(None, None, city=0, users=12, cell_size=10.0)
    data, unseen, grid = source.load()
    vm.train(
        data,
        grid,
        mechanism=vm.GeometryAligned(noise_budget=50),
        rounds=12,
        seed=0,
        recording=vm.Recording(
            out=folder / "city", keep_uploads={0, 11}, test=unseen, source=source.described()
        ),
    )
    hostile(folder)
    large(folder)
    surveyed(folder / "town")
    trial(folder)
    return folder


def trial(folder):
    """A survey that promises nothing, with an audit; its names are pieces of HTML."""
    path = surveyed(folder / "trial", names=(f"{HOSTILE}1", f"{HOSTILE}2"), seed=1)
    content = audit_of(path)
    attacks = [one | {"knows": HOSTILE, "median": None} for one in content["location"]]
    audited(path, **content | {"location": attacks, "verdict": None})


def large(folder):
    """A run with more cells than are shown."""
    source = Source(None, None, city=0, users=4, cell_size=0.6)
    data, _, grid = source.load()
    recording = vm.Recording(out=folder / "large", source=source.described())
    vm.train(data, grid, rounds=2, seed=0, recording=recording)


def hostile(folder):
    scene = vm.Scene.synthetic(1, size=100, cell_size=10, buildings=2, base_stations=4)
    plain = scene.measure(users=3, links_per_user=4, seed=0)
    data = vm.Measurements(
        [f"{HOSTILE}{user}" for user in plain.user],
        plain.user_xyz,
        plain.bs_xyz,
        plain.gain_db,
        bs=[f"{HOSTILE}{bs}" for bs in plain.bs],
    )
    data.save(folder / "links.parquet")
    source = Source(folder / "links.parquet", None, 0, 3, 10.0)
    links, _, grid = source.load()
    path = folder / HOSTILE.replace("/", "")
    recording = vm.Recording(path, keep_uploads="all", source=source.described())
    vm.train(links, grid, rounds=3, seed=0, recording=recording)


@pytest.fixture(scope="module")
def served(runs, tmp_path_factory):
    """The address of `veilmap serve`, which ends with the tests."""
    new_runs = tmp_path_factory.mktemp("new")
    command = [sys.executable, "-m", "veilmap.cli", "serve", str(runs), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--new-runs", str(new_runs)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield re.search(r"http://\S+", process.stdout.readline()).group()
    process.send_signal(signal.SIGINT)
    process.wait(30)
    process.stdout.close()


@pytest.fixture
def visit(browser, served):
    """A visit on a laptop on which nothing may go wrong."""
    visit = Visit(browser, f"{served}#run=city")
    yield visit
    assert visit.problems == []
    assert all(url.startswith((served, "blob:")) for url in visit.requests)
    visit.close()


def test_it_loads_and_reads_out_what_the_pointer_is_on(visit):
    assert visit.page.title().startswith("veilmap")
    assert visit.at("run").locator("option:checked").inner_text().startswith("city")
    visit.at("canvas-learned").hover()
    visit.page.wait_for_function(
        "() => /dB/.test(document.querySelector('[data-testid=readout]').textContent)"
    )
    assert re.search(r"\d m east.*\d m north.*−?\d.*dB", visit.at("readout").inner_text())
    visit.picture("map")


def test_a_click_places_a_base_station(visit):
    before = pixels(visit, "canvas-learned")
    box = visit.at("canvas-learned").bounding_box()
    visit.page.mouse.click(box["x"] + 0.55 * box["width"], box["y"] + 0.4 * box["height"])
    visit.settled()
    visit.page.wait_for_function("() => /x=|at=|place/.test(location.hash)")
    assert pixels(visit, "canvas-learned") != before
    placed = pixels(visit, "canvas-learned")
    visit.at("station-height").press("PageUp")
    visit.settled()
    assert pixels(visit, "canvas-learned") != placed


def test_layers_can_be_switched(visit):
    seen = []
    for layer, unit in (("los", ""), ("best-server", ""), ("heights", "m"), ("gain", "dB")):
        visit.at("layer").select_option(layer)
        visit.settled()
        legend = visit.at("pane-learned").inner_text()
        assert unit in legend
        seen.append(pixels(visit, "canvas-learned"))
        visit.picture(f"layer-{layer}")
    assert len({*seen}) == len(seen)


def test_uncertainty_says_what_it_takes(visit):
    visit.at("layer").select_option("uncertainty")
    visit.page.get_by_text("maps of resampled users").first.wait_for()


def test_learned_true_and_error_are_side_by_side(visit):
    visit.at("compare").click()
    for name in ("learned", "true", "error"):
        visit.at(f"canvas-{name}").wait_for()
    visit.settled()
    visit.picture("compare")
    pictures = [pixels(visit, f"canvas-{name}") for name in ("learned", "true", "error")]
    assert len({*pictures}) == 3


def test_a_large_map_is_shown_by_squares(browser, served):
    visit = Visit(browser, f"{served}#run=large&compare=true")
    visit.at("canvas-learned").hover()
    visit.page.wait_for_function(
        "() => /of 1.2 m × 1.2 m/.test(document.querySelector('[data-testid=readout]').textContent)"
    )
    assert visit.page.get_by_text("500 × 500 cells of 0.6 m").count() == 1
    for view in VIEWS:
        visit.open(view)
    visit.open("map")
    visit.at("layer").select_option("heights")
    visit.settled()
    visit.picture("large")
    assert visit.problems == []
    visit.close()


def test_a_geotiff_can_be_downloaded_and_opened(visit, runs, tmp_path):
    import rasterio

    with visit.page.expect_download() as download:
        visit.at("download-tif").click()
    path = tmp_path / "layer.tif"
    download.value.save_as(path)
    with rasterio.open(path) as raster:
        values, station = raster.read(1), raster.tags()["base_station"]
    run = vm.federation.Run.load(runs / "city")
    places, ids = RunFolder(runs / "city").base_stations()
    expected = vm.layers.gain(run.radio_map, places[ids.index(station)], station=station)
    np.testing.assert_allclose(np.flipud(values), expected.values, rtol=1e-6)


def test_a_picture_can_be_downloaded(visit, tmp_path):
    with visit.page.expect_download() as download:
        visit.at("download-png").click()
    path = tmp_path / "shown.png"
    download.value.save_as(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 5_000


def test_moving_mu_moves_the_estimate(visit):
    visit.open("sees")
    visit.page.get_by_text("gradient inversion").first.wait_for()
    before = centroid_error(visit)
    visit.picture("sees")
    for _ in range(60):
        visit.at("mu").press("ArrowLeft")
    visit.settled()
    visit.page.wait_for_function(
        "before => document.querySelector('[data-testid=attacks]').textContent !== before",
        arg=before,
    )
    assert centroid_error(visit) != before
    assert "metre" in visit.at("summary").inner_text() or " m" in visit.at("summary").inner_text()


def centroid_error(visit):
    return visit.at("attacks").locator("tr", has_text="centroid").first.inner_text()


def test_the_server_may_see_only_the_sum(visit):
    visit.open("sees")
    visit.at("sum").click()
    visit.at("attacks").locator("tr", has_text="differencing").first.wait_for()
    visit.settled()
    visit.picture("sum")
    assert visit.at("attacks").locator("tr", has_text="gradient inversion").count() == 0


def test_a_run_is_followed_to_its_end(visit):
    visit.at("new-run").click()
    form = visit.page.locator("dialog")
    form.get_by_label("Rounds").fill("8")
    form.get_by_label("Users", exact=True).fill("5")
    visit.at("start-run").click()
    visit.page.get_by_text(re.compile("Finished: round 8 of 8")).wait_for(timeout=90_000)
    visit.settled()
    visit.picture("training")
    assert visit.page.get_by_text("This run promises no ε").count() == 1


def test_the_trade_off_attacks_a_run_and_opens_it(visit):
    visit.open("tradeoff")
    visit.page.get_by_role("button", name="Attack it").first.click()
    point = visit.at("tradeoff-chart").locator("[role=link], a, [role=button]").first
    point.wait_for(timeout=120_000)
    visit.picture("tradeoff")
    point.focus()
    visit.page.keyboard.press("Enter")
    visit.at("attacks").wait_for(timeout=30_000)


def test_everything_works_with_the_keyboard(visit):
    visit.at("tab-map").focus()
    visit.page.keyboard.press("ArrowRight")
    assert visit.at("tab-training").get_attribute("aria-selected") == "true"
    visit.page.keyboard.press("ArrowLeft")
    visit.settled()
    canvas = visit.at("canvas-learned")
    canvas.focus()
    for key in ("ArrowRight", "ArrowUp", "+", "0"):
        visit.page.keyboard.press(key)
    assert "dB" in visit.at("readout").inner_text()
    before = visit.page.url
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_function("before => location.href !== before", arg=before)


def test_controls_have_names(visit):
    """What a screen reader says of each control is not empty."""
    nameless = """() => [...document.querySelectorAll('button, select, input, canvas, a[href]')]
        .filter(e => !e.closest('[aria-hidden=true]'))
        .filter(e => e.offsetParent !== null)
        .filter(e => !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim()
                       || e.getAttribute('aria-labelledby') || e.getAttribute('title')))
        .map(e => e.outerHTML)"""
    for view in VIEWS:
        visit.open(view)
        assert visit.page.evaluate(nameless) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(browser, served, scheme):
    visit = Visit(browser, f"{served}#run=city", width=390, height=844, scheme=scheme)
    for view in VIEWS:
        visit.open(view)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390, view
        visit.picture(f"phone-{scheme}-{view}", full_page=True)
    assert visit.problems == []
    visit.close()


def test_a_survey_is_shown_beside_runs(browser, served):
    visit = Visit(browser, f"{served}#run=town")
    assert "one sum, ε = 4" in visit.at("run").locator("option:checked").inner_text()
    seen = []
    for layer in ("gain", "best-server", "uncertainty"):
        visit.at("layer").select_option(layer)
        visit.settled()
        seen.append(pixels(visit, "canvas-learned"))
        visit.picture(f"survey-{layer}")
    assert len({*seen}) == 3
    box = visit.at("canvas-learned").bounding_box()
    visit.page.mouse.click(box["x"] + 0.55 * box["width"], box["y"] + 0.4 * box["height"])
    visit.settled()
    # Nobody knows how readings of a new base station deviate: none is placed.
    assert visit.at("station").input_value() in ("north", "south")
    assert visit.page.locator(".notice .card").count() == 0
    visit.open("training")
    visit.page.get_by_text("A survey has no rounds").wait_for()
    visit.picture("survey-training")
    visit.open("sees")
    before = pixels(visit, "canvas-counts"), visit.at("summary").inner_text()
    visit.picture("survey-sees")
    visit.at("sum-station").select_option("south")
    visit.page.wait_for_function(
        "before => document.querySelector('[data-testid=summary]').textContent !== before",
        arg=before[1],
    )
    visit.settled()
    assert pixels(visit, "canvas-counts") != before[0]
    visit.at("canvas-counts").hover()
    visit.page.wait_for_function(
        "() => /contributions/.test(document.querySelector('[data-testid=readout]').textContent)"
    )
    visit.open("tradeoff")
    assert visit.at("usual-set").is_disabled()
    visit.open("map")
    assert visit.page.get_by_text("(ε, δ) = (4, 1e-06)").count() == 1
    assert visit.problems == []
    visit.close()


@pytest.mark.parametrize(("width", "height"), [(1366, 768), (390, 844)])
def test_an_audited_survey_fits_the_screen(browser, served, width, height):
    visit = Visit(browser, f"{served}#run=trial", width=width, height=height)
    for view in VIEWS:
        visit.open(view)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width, view
        visit.picture(f"survey-{width}-{view}", full_page=True)
    visit.open("sees")
    tables = visit.at("survey-audit").locator("table")
    assert tables.count() == 3
    assert "1.23" in tables.nth(1).inner_text()
    assert HOSTILE in tables.nth(2).inner_text()
    # Where a table is wider than its place, that place scrolls and nothing is cut.
    cut = """() => [...document.querySelectorAll('.across .table')]
        .filter(e => e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX !== 'auto')"""
    assert visit.page.evaluate(cut) == []
    assert visit.page.locator("img[src=x]").count() == 0
    assert visit.problems == []
    visit.close()


def test_a_survey_has_no_measurements_to_train_on(visit):
    visit.at("new-run").click()
    source = visit.page.locator("dialog select[name=like]")
    source.wait_for()
    offered = source.locator("option").all_inner_texts()
    assert any("city" in one for one in offered)
    assert not any("one sum" in one for one in offered)


def test_dark_is_dark(browser, served):
    visit = Visit(browser, f"{served}#run=city", scheme="dark")
    colour = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in re.findall(r"\d+", colour)[:3]) < 80
    visit.picture("dark")
    visit.close()


def test_names_are_shown_and_never_run(browser, served):
    """Folder, base stations and users are called like a piece of HTML with a script in it."""
    visit = Visit(browser, served)
    labels = visit.at("run").locator("option").all_inner_texts()
    visit.at("run").select_option(index=next(i for i, t in enumerate(labels) if "<img" in t))
    for view in VIEWS:
        visit.open(view)
    visit.open("map")
    assert HOSTILE in visit.at("station").inner_text()
    visit.open("sees")
    assert HOSTILE in visit.at("user").inner_text()
    assert visit.page.locator("img[src=x]").count() == 0
    assert visit.problems == []
    visit.close()


def test_a_server_that_has_gone_is_noticed(browser, runs, tmp_path):
    from suite.page import in_background

    with in_background(runs / "city") as port:
        visit = Visit(browser, f"http://127.0.0.1:{port}/")
    visit.at("layer").select_option("heights")
    visit.page.get_by_text("is veilmap serve still running?").wait_for(timeout=30_000)
    visit.picture("server-gone")
    visit.close()


def pixels(visit, testid):
    """What is drawn on a canvas, as text."""
    return visit.at(testid).evaluate("canvas => canvas.toDataURL()")
