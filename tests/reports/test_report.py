"""`veilmap report`: one page about runs that needs nothing beside it."""

import re
import shlex
import shutil
from dataclasses import replace

import numpy as np
import pytest

import veilmap as vm
from commands import run as command
from reported import Page, undrawn
from veilmap import figures
from veilmap.auditing import audit
from veilmap.auditing.exposure import Knobs, Witness
from veilmap.federation import Run
from veilmap.federation.config import RunConfig
from veilmap.federation.public import write_stations
from veilmap.figures.content import MapPanel, Maps
from veilmap.reports import audits as audited
from veilmap.reports import exposures, html, pages
from veilmap.reports.maps import nearest_to_middle
from veilmap.reports.words import promise as promise_in_words
from veilmap.runs.opened import OpenRun

HOSTILE = "<script>alert(1)</script>"
ODD = "<b>run & co"


@pytest.fixture(scope="module")
def town():
    """A small town whose users and base stations have ids that would break a careless page."""
    scene = vm.Scene.synthetic(5, size=90.0, buildings=4, base_stations=40)
    data = scene.measure(users=8, links_per_user=25, seed=0)
    users = np.array(
        [HOSTILE if user == 0 else rf"$\frac{user}$ & co" for user in data.user.tolist()]
    )
    bs = np.array([f'"{HOSTILE}{station}' for station in data.bs.tolist()])
    return scene, replace(data, user=users, bs=bs)


@pytest.fixture(scope="module")
def runs(tmp_path_factory, town):
    """Folders of small runs, of every kind that pages tell apart."""
    scene, data = town
    place = tmp_path_factory.mktemp("runs")
    data.save(place / "links.parquet")
    scene.measure(users=6, links_per_user=20, seed=1).save(place / "test.parquet")
    write_stations(data.stations, place / "stations.csv")
    files = [str(place / "links.parquet"), "--test", str(place / "test.parquet"),
             "--area", "0,0,90,90", "--stations", str(place / "stations.csv")]  # fmt: skip
    aligned = ["--mechanism", "aligned", "--budget", "20", "--tradeoff", "2"]
    for name, options in {
        ODD: [*files, *aligned, "--keep-uploads", "1,3"],
        "aggregate": [*files, "--mechanism", "aggregate", "--epsilon", "6", "--delta", "1e-3",
                      "--keep-uploads", "1,3"],
        "unkept": [str(place / "links.parquet"), "--mechanism", "none"],
        "city": ["--city", "1", "--users", "6", "--cell-size", "15", "--keep-uploads", "1,2,3",
                 "--share", "0.6", "--degrees", "3"],
        "field": [*files, "--mechanism", "none", "--server-sees", "sums", "--residual", "30",
                  "--calibrate", "stations", "--keep-uploads", "3"],
    }.items():  # fmt: skip
        with pytest.raises(SystemExit) as end:
            vm_main("train", *options, "--rounds", "3", "--seed", "1", "--out", str(place / name))
        assert end.value.code == 0
    return place


def vm_main(*arguments):
    from veilmap.cli import main

    main(list(arguments))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(figures, "png", undrawn)


@pytest.fixture(scope="module")
def written(runs):
    """The page of every kind of run, written once; one of them with all its pictures.

    Of the run with a guarantee there are two: what was published, and a study.
    """
    pages = {}
    for name in (ODD, "aggregate", "unkept", "city", "field"):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as end:
            if name != ODD:
                patch.setattr(figures, "png", undrawn)
            vm_main("report", str(runs / name), *(["--study"] if name == "aggregate" else []))
        assert end.value.code == 0
        beside = f"{name}.study" if name == "aggregate" else name
        pages[name] = Page(runs / beside / "report.html")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as end:
        patch.setattr(figures, "png", undrawn)
        vm_main("report", str(runs / "aggregate"))
    assert end.value.code == 0
    pages["published"] = Page(runs / "aggregate" / "report.html")
    return pages


def test_a_page_needs_nothing_beside_it_and_runs_nothing(written):
    for page in written.values():
        assert not re.findall(r"https?://", page.source)
        assert {"script", "link", "iframe", "object", "form"}.isdisjoint(
            name for name, _ in page.elements
        )
        for _, attributes in page.elements:
            assert not [name for name in attributes if name.startswith("on")]
            assert attributes.get("src", "data:image/png;base64,").startswith("data:image/png;")
            assert attributes.get("href", "#").startswith("#")
        assert "url(" not in page.source
        assert "default-src 'none'" in page.source
        images = page.every("img")
        assert len(images) >= 3
        assert all(len(image["alt"]) > 10 and int(image["width"]) > 300 for image in images)
        assert all(scope["scope"] in ("col", "row") for scope in page.every("th"))


def test_ids_and_folders_are_text_whatever_they_hold(written):
    page = written[ODD]
    assert "<script" not in page.source
    assert HOSTILE in page.text  # a base station's or a user's id, as people gave it
    assert "Run <b>run & co" in page.text
    assert not page.every("b")


@pytest.fixture(scope="module")
def audits(runs):
    """The same runs, audited beside their pages."""
    found = {}
    for name in (ODD, "aggregate"):
        opened = OpenRun(runs / name, study=True)
        found[name] = audit.audit(Run.load(runs / name), opened.data, test=opened.test)
    return found


def test_brackets_in_a_folders_name_are_no_markup(capsys, quick, runs, tmp_path):
    shutil.copytree(runs / "unkept", tmp_path / "[" / "b]")
    code, said, _ = command(capsys, "report", str(tmp_path / "[" / "b]"))
    assert code == 0
    assert "[/b]/report.html" in said.replace("\n", "")


def test_the_head_says_what_the_run_is(written, audits):
    text = written[ODD].text
    for words in (
        "clipped to norm C = 1 and get Gaussian noise of μ = 20 times their energy",
        "(ρ = 2)", "every user's upload", "no (ε, δ) guarantee: it is obfuscation",
        "8 users with 200 links", f"veilmap {vm.__version__}", "links.parquet",
        f"{audits[ODD].mae_db:.2f} dB on average",
    ):  # fmt: skip
        assert words in text
    assert "synthetic city 1, whose truth is known" in written["city"].text


@pytest.mark.parametrize("name", ["city", "aggregate", "unkept", "field"])
def test_the_command_makes_the_same_run_again(runs, written, tmp_path, name):
    opened = OpenRun(runs / name, study=True)
    words = shlex.split(opened.command)
    assert words[:2] == ["veilmap", "train"]
    with pytest.raises(SystemExit):
        vm_main(*words[1:], "--out", str(tmp_path / "again"))
    beside = ".study" if name == "aggregate" else ""
    file = "study.json" if beside else "config.json"
    again = RunConfig.load(tmp_path / f"again{beside}", file)
    assert again == RunConfig.load(runs / f"{name}{beside}", file)
    kept = [file.name for file in (tmp_path / "again" / "transcript").glob("*")]
    assert len(kept) == len(opened.kept_rounds())
    assert f"To make it again {shlex.join(words)}" in written[name].text


def test_commands_that_would_make_another_run_are_not_shown(runs):
    opened = OpenRun(runs / "city")
    config = opened.config
    assert opened.command
    for change in ({"step": replace(config.step, damping=0.5)}, {"buildings": "ab"}):
        opened.config = replace(config, **change)
        assert opened.command is None
    opened.config, opened.source = config, None
    assert opened.command is None


@pytest.mark.parametrize("name", [ODD, "aggregate"])
def test_tables_are_the_audits_own(written, audits, name):
    (table,) = (rows for title, rows in written[name].tables.items() if "place the users" in title)
    assert table == [[*audited.COLUMNS], *audited.table_rows(audits[name])]
    for line in (*audited.verdict(audits[name]), audited.quality(audits[name])):
        assert line in written[name].text
    assert audits[name].promise in written[name].text
    assert "It bounds nothing" in written[name].text


def test_the_report_of_noisy_sums_has_who_knows_everybody_else(written, audits):
    sums = audits["aggregate"].sums
    assert sums is not None
    (table,) = (
        rows for title, rows in written["aggregate"].tables.items() if "everybody else" in title
    )
    assert table == [[*audited.PROMISE_COLUMNS], *audited.membership_rows(sums.membership)]
    assert audited.sums_note(sums) in written["aggregate"].text
    assert audits[ODD].sums is None


def test_errors_of_attacks_on_one_user_are_those_of_the_witness(runs, written, audits):
    run = Run.load(runs / ODD)
    truth = OpenRun(runs / ODD).data
    witness, knobs = Witness(run.transcript, truth), Knobs(20.0, 2.0, 1.0)
    best = audits[ODD].strongest
    placed = audits[ODD].estimates[best.attack].placed[best.when]
    errors = placed.errors(audits[ODD].truth)
    tables = {title: rows for title, rows in written[ODD].tables.items() if "Metres" in title}
    (user,) = {title.split("user ")[1].split(", round")[0] for title in tables}
    away = errors[[*map(str, placed.clients)].index(user)]
    assert np.sum(errors < away) == len(errors) // 2  # a typical user
    assert [title.rsplit(" ", 1)[1] for title in tables] == ["1", "3"]
    for number, (head, *rows) in zip((0, 2), tables.values(), strict=True):
        assert head == ["attack", "no noise", "uniform, μ = 20", "aligned, μ = 20, ρ = 2", "sent"]
        witness.prepare(number)
        exposure = witness.upload(witness.named(user, number), number, knobs)
        assert {row[0] for row in rows} == set(exposure.schemes["sent"].estimates)
        for attack, *cells in rows:
            assert cells == [
                audited.metres(exposure.error(scheme, attack))
                for scheme in ("no noise", "uniform", "aligned", "sent")
            ]


def test_a_run_without_uploads_says_how_to_see_attacks(written):
    page = written["unkept"]
    assert "This run kept no uploads: train with --keep-uploads to see attacks." in page.text
    assert page.tables == {}
    assert "audit" not in page.text
    assert len(page.every("img")) == 3  # heights, gain, loss
    assert "No noise was added." in page.text
    assert "there were no test users" in page.text
    assert "Map error not measured" in page.text


def test_rounds_that_no_attack_reads_are_named(written):
    page = written["field"]
    assert "kept only rounds that learn a residual field" in page.text
    assert page.tables == {}


def test_the_promise_is_shown_with_what_it_rests_on_and_none_with_a_seed(runs, monkeypatch):
    opened = OpenRun(runs / "aggregate", study=True)
    assert "computable from the seed" in promise_in_words(opened)
    assert "ε" not in promise_in_words(opened)
    opened.config = replace(opened.config, seed=None)
    monkeypatch.setattr(opened, "spent", lambda: 6.0)
    for words in (
        "(ε, δ) = (6.00, 0.001) for one user's contributions",
        "at least 90% of a round's users adding their noise",
    ):
        assert words in promise_in_words(opened)


def test_a_report_on_a_run_with_a_guarantee_holds_what_was_published(written):
    page, study = written["published"], written["aggregate"]
    for words in ("Study", "Metres between", "The ring is", "with 200 links", "links.parquet"):
        assert words not in page.text
    assert "8 users" in page.text
    assert "Map error not published" in page.text
    assert not any("loss is" in image["alt"] for image in page.every("img"))
    assert any("loss is" in image["alt"] for image in study.every("img"))
    mark = "Study: not for publication"
    assert study.source.count(f"<h2>{mark}") == study.source.count("<h2") == 4
    assert f"<title>{mark}" in study.source


def test_a_server_of_sums_shows_sums(written):
    page = written["aggregate"]
    for words in (
        "only sums over a round's users",
        "the noise is computable from the seed",
        "The ring is where the user was",
        "The mean gradient of 8 users",
        "has no such parameters; taken are μ = 50, ρ = 1",
    ):
        assert words in page.text
    assert not any("ε is" in image["alt"] for image in page.every("img"))
    tables = [rows for title, rows in page.tables.items() if "Metres" in title]
    assert [[row[0] for row in rows[1:]] for rows in tables] == 2 * [["prior only", "differencing"]]


def test_a_city_is_shown_beside_its_truth(written):
    seen = [image["alt"] for image in written["city"].every("img")]
    for words in ("learned obstacle", "true building", "predicted gain", "true gain", "error"):
        assert any(words in alt for alt in seen), words
    assert not any("true" in image["alt"] for image in written[ODD].every("img"))


def test_without_measurements_the_rest_is_written(capsys, quick, runs, tmp_path):
    for number, name in enumerate((ODD, "aggregate")):
        copy = tmp_path / str(number)
        shutil.copytree(runs / name, copy)
        beside = copy
        if name == "aggregate":
            beside = tmp_path / f"{number}.study"
            shutil.copytree(runs / f"{name}.study", beside)
        file = "config.json" if beside == copy else "study.json"
        config = RunConfig.load(beside, file)
        replace(config, source=config.source | {"data": "/gone.parquet"}).save(beside, file)
        code, _, _ = command(capsys, "report", str(copy), "--study")
        assert code == 0
        page = Page(beside / "report.html")
        assert "not at hand: /gone.parquet does not exist" in page.text
        assert "nothing can be scored" in page.text
        assert "To make it again" not in page.text
        assert len(page.tables) == 2
        for title, (head, *rows) in page.tables.items():
            assert title.startswith("Places (x, y in metres)")
            assert head == ["attack", "sent"]
            assert all(re.fullmatch(r"-?\d+, -?\d+", place) for _, place in rows)


def test_several_runs_begin_with_what_privacy_costs(capsys, quick, runs, audits, tmp_path):
    out = tmp_path / "new" / "both.html"
    paths = [str(runs / name) for name in (ODD, "aggregate", "unkept")]
    code, said, _ = command(capsys, "report", *paths, "--study", "--out", str(out))
    assert code == 0
    assert "both.html" in said.replace("\n", "")
    page = Page(out)
    named = audited.by_label((name, audits[name]) for name in (ODD, "aggregate"))
    first = next(iter(page.tables.values()))
    assert first == [[*audited.TRADEOFF_COLUMNS], *audited.tradeoff_rows(named)]
    assert "for want of kept uploads or measurements: unkept." in page.text
    assert page.text.index("Not compared") < page.text.index("Mechanism")
    anchors = {element["id"] for element in page.every("h2") if "id" in element}
    assert anchors == {link["href"][1:] for link in page.every("a")} == {"run-1", "run-2", "run-3"}
    assert page.source.count("place the users") == 4  # a caption and a label for each audit
    assert not list(out.parent.glob(".*"))


def test_another_user_can_be_looked_at(capsys, quick, runs, tmp_path):
    out = tmp_path / "report.html"
    code, _, _ = command(capsys, "report", str(runs / ODD), "--user", HOSTILE, "--out", str(out))
    assert code == 0
    page = Page(out)
    assert f"User {HOSTILE} in round 3" in page.text
    assert f"believes user {HOSTILE} to be" in page.text
    assert "a typical one" not in page.text
    assert "<script" not in page.source


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{odd}", "--user", "nobody"], "user: nobody"),
        (["{odd}", "{unkept}", "--user", "nobody"], "user: nobody"),
        (["{unkept}", "--user", "1"], "keep_uploads"),
        (["nowhere"], "nowhere"),
        (["{odd}", "--data", "{test}"], "(--data)"),
        (["{odd}", "--data", "gone.csv"], "gone.csv"),
        (["{odd}", "--test", "gone.csv"], "gone.csv"),
        (["{sums}", "--data", "{test}"], "--study"),
        (["{odd}", "--out", "report.pdf"], ".html"),
        (["{odd}", "--out", "{test}/report.html"], "test.parquet"),
        ([], "RUNS"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    capsys, runs, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(audit, "audit", None)  # no work before mistakes are found
    names = {"odd": runs / ODD, "unkept": runs / "unkept", "test": runs / "test.parquet",
             "sums": runs / "aggregate"}  # fmt: skip
    given = [part.format(**names) for part in arguments]
    code, out, error = command(capsys, "report", *given)
    assert (code, out) == (2, "")
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_help_has_examples(capsys):
    code, out, _ = command(capsys, "report", "--help")
    assert code == 0
    assert "veilmap report run --user 17 --out run.html" in " ".join(out.split())
    for option in ("--out", "--user", "--data", "--test"):
        assert option in out


def test_what_is_not_known_of_training_is_said(quick, runs):
    history = [
        replace(row, epsilon=1.0) for row in Run.load(runs / "aggregate", study=True).history
    ]
    unknown = [
        replace(row, loss=np.nan, mae_db=np.nan, noise_energy=np.nan, epsilon=np.nan)
        for row in history
    ]
    (said,) = pages.training_section(unknown)
    for words in ("loss is not known", "no test users", "energy is not known", "no ε to show"):
        assert words in said
    (shown,) = pages.training_section(history)
    assert shown.count("<img") == 4


def test_the_station_in_the_middle_is_shown():
    stations = np.array([[0.0, 0.0, 9.0], [14.0, 11.0, 9.0], [30.0, 20.0, 9.0]])
    assert nearest_to_middle(vm.Grid(3.0, (7, 10)), stations) == 1


def test_knobs_are_the_runs_own_where_it_has_them():
    assert exposures.knobs_of(vm.NoNoise(clip=0.4)) == Knobs(50.0, 1.0, 0.4)
    assert exposures.knobs_of(vm.UniformNoise(noise_budget=7.0, clip=2.0)) == Knobs(7.0, 1.0, 2.0)


def test_every_estimate_has_a_mark_of_its_own_and_the_legend_a_free_place():
    names = ("a", "b", "c", "d", "e", "f", "g")
    places = {name: np.array([2.0, float(i)]) for i, name in enumerate(names)}
    panel = MapPanel("p", np.arange(20.0).reshape(4, 5), np.array([3.0, 3.0]), places)
    plain = replace(panel, estimates={})
    figure = figures.draw(Maps("m", "c", vm.Grid(3.0, (4, 5)), "s", ((panel, plain), (panel,))))
    legend = figure.axes[3].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["user", *names]
    assert not figure.axes[3].axison
    drawn = [line for line in figure.axes[0].lines if line.get_label() in names]
    assert len({(line.get_marker(), line.get_color()) for line in drawn}) == len(names)
    assert len({line.get_marker() for line in drawn}) == len(names)


def test_pictures_that_are_long_scroll_by_themselves():
    figure = figures.draw(Maps("m", "c", vm.Grid(1.0, (2, 2)), "s", ((MapPanel("", np.eye(2)),),)))
    upright = figures.png(figure)
    figure.set_size_inches(9, 2)
    assert 'class="wide"' in html.picture(figures.png(figure), "long")
    assert 'class="wide"' not in html.picture(upright, "upright")
    assert 'width="1080" height="240"' in html.picture(figures.png(figure), "long")
