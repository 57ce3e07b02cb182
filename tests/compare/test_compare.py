"""Methods on folds: scores, what is not computed again, and summaries."""

import io
import itertools
import math
import sys
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from sklearn.base import clone

import veilmap as vm
from veilmap import compare as comparing
from veilmap.baselines import GradientBoosting, LogDistance, NearestNeighbours
from veilmap.cli import tables
from veilmap.compare import (
    Comparison,
    FederatedMap,
    FoldScore,
    Method,
    PooledMap,
    Splits,
    by_blocks,
    by_users,
    compare,
    few_links,
)
from veilmap.compare.methods import ComparisonSettings
from veilmap.compare.running import scored
from veilmap.errors import ConfigurationError, MissingExtraError
from veilmap.federation.selection import NEVER_CLIPS, ModelChoice, ModelTrial, choose, preferred

by_name = sys.modules["veilmap.compare.methods"]  # a function of the package has the same name

pytestmark = pytest.mark.usefixtures("one_thread")

SCENE = vm.Scene.synthetic(3, base_stations=6, cell_size=10.0)
DATA = SCENE.measure(users=30, links_per_user=5, seed=0)
SETTING = ComparisonSettings(SCENE.grid, rounds=3)


def counting(name, estimator, calls):
    """A method whose model is chosen: it notes every fold that it is asked about."""

    @dataclass
    class Chosen(type(estimator)):
        model: str = ""

    def choose(fold):
        calls.append((fold.scheme, fold.number, name))
        return f"{name} model"

    return Method(name, Chosen(), choose)


def pair(calls):
    return [counting("line", LogDistance(), calls), counting("k-nn", NearestNeighbours(), calls)]


def test_scores_equal_a_plain_loop():
    found = list(compare(by_users(DATA, 3), pair([])))
    expected = []
    for fold in by_users(DATA, 3):
        for name, baseline in (("line", LogDistance()), ("k-nn", NearestNeighbours())):
            wrong = baseline.fit(fold.train).predict_links(fold.test) - fold.test.gain_db
            mae, rmse = np.abs(wrong).mean(), math.sqrt(np.mean(wrong**2))
            expected.append(
                FoldScore(
                    "random users", fold.number, name, len(wrong), mae, rmse, 0.0, f"{name} model"
                )
            )
    assert [replace(score, seconds=0.0) for score in found] == expected
    assert all(score.seconds > 0 for score in found)


def test_what_is_done_is_not_done_again():
    whole = list(compare(by_users(DATA, 3), pair([])))
    # Only the key counts: these figures were made by nobody.
    done = [replace(score, mae_db=123.0) for score in (whole[1], whole[4])]
    elsewhere = replace(whole[0], scheme="blocks of 5 m")
    calls = []
    again = list(compare(by_users(DATA, 3), pair(calls), [*done, elsewhere]))
    assert calls == [whole[number].key for number in (0, 2, 3, 5)]
    assert [score.mae_db == 123.0 for score in again] == [False, True, False, False, True, False]
    assert [score.key for score in again] == [score.key for score in whole]
    calls.clear()
    assert list(compare(by_users(DATA, 3), pair(calls), whole)) == whole
    assert calls == []


def test_scores_come_as_they_are_made():
    calls = []
    scores = compare(by_users(DATA, 3), pair(calls))
    assert calls == []
    next(scores)
    assert len(calls) == 1


def test_the_choice_of_a_model_does_not_count_as_time(monkeypatch):
    clock = itertools.count(0.0, 2.0)
    order = []

    @dataclass
    class Noted(LogDistance):
        model: str = ""

        def fit(self, data):
            order.append(("fitted", self.model, next(clock)))
            return super().fit(data)

    def read():
        order.append("read")
        return next(clock)

    method = Method("line", Noted(), lambda fold: order.append("chosen") or "best")
    monkeypatch.setattr("veilmap.compare.running.time", SimpleNamespace(perf_counter=read))
    score = scored(method, next(by_users(DATA)))
    assert order == ["chosen", "read", ("fitted", "best", 2.0), "read"]
    assert score.seconds == 4.0
    assert score.model == "best"


def test_summaries_are_over_all_links():
    data = DATA.select(np.arange(len(DATA)) % 7 != 0)  # folds of unequal size
    folds = list(by_users(data, 4))
    assert len({len(fold.test) for fold in folds}) > 1
    scores = list(compare(folds, pair([])))
    central = [replace(score, method="central", mae_db=2.0) for score in scores[::2]]
    rows = Comparison([*scores, *central]).summaries()
    assert [(row.scheme, row.method, row.folds) for row in rows] == [
        ("random users", name, 4) for name in ("line", "k-nn", "central")
    ]
    for row, baseline in zip(rows, (LogDistance(), NearestNeighbours()), strict=False):
        wrong = [
            baseline.fit(fold.train).predict_links(fold.test) - fold.test.gain_db for fold in folds
        ]
        together = np.concatenate(wrong)
        assert row.mae_db == pytest.approx(np.abs(together).mean())
        assert row.rmse_db == pytest.approx(math.sqrt(np.mean(together**2)))
        each = [np.abs(one).mean() for one in wrong]
        assert row.spread_db == pytest.approx(np.std(each, ddof=1) / 2)
        assert row.cost_db == pytest.approx(row.mae_db - 2.0)
        own = [score.seconds for score in scores if score.method == row.method]
        assert row.seconds == pytest.approx(np.mean(own))
        assert row.models == ((f"{row.method} model", 4),)
    assert rows[2].cost_db == 0.0


def score(fold, method, mae=4.0, links=10, scheme="a", model=""):
    return FoldScore(scheme, fold, method, links, mae, mae, 1.0, model)


def test_costs_are_on_the_folds_that_central_has_too():
    scores = [
        score(0, "k-nn", 5.0, 10), score(1, "k-nn", 8.0, 30), score(2, "k-nn", 100.0),
        score(0, "central", 4.0, 10), score(1, "central", 4.0, 30), score(3, "central", 50.0),
        score(0, "k-nn", 9.0, scheme="b"),
    ]  # fmt: skip
    first, second, third = Comparison(scores).summaries()
    assert first.cost_db == pytest.approx((10 * 1.0 + 30 * 4.0) / 40)
    assert second.cost_db == 0.0
    assert (third.scheme, third.method, third.mae_db) == ("b", "k-nn", 9.0)
    assert math.isnan(third.cost_db)
    assert math.isnan(third.spread_db)


def test_models_are_listed_by_how_often_they_were_chosen():
    scores = [score(n, "central", model=name) for n, name in enumerate("xyyxy")]
    row = Comparison(scores).summaries()[0]
    assert row.models == (("y", 3), ("x", 2))


def shown(table):
    console = Console(width=120, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()


def test_tables_show_a_scheme_each():
    scores = [
        score(0, "k-nn", 5.0),
        score(1, "k-nn", 7.0),
        score(0, "central", 4.25, model="no obstacles"),
        score(1, "central", 4.25, model="rich"),
        score(0, "k-nn", 9.0, scheme="b"),
    ]
    first, second = map(shown, tables.comparison_tables(Comparison(scores)))
    assert "Error on test data: a, 2 folds" in first
    assert "Error on test data: b, 1 folds" in second
    near, central = (
        next(line for line in first.splitlines() if line.strip().startswith(name)).split()
        for name in ("k-nn", "central")
    )
    assert near == ["k-nn", "6.00", "1.00", "6.08", "+1.75", "1.0"]
    assert central[:5] == ["central", "4.25", "0.00", "4.25", "1.0"]
    assert "no obstacles (1×); rich (1×)" in first
    alone = next(line for line in second.splitlines() if line.strip().startswith("k-nn")).split()
    assert alone == ["k-nn", "9.00", "9.00", "1.0"]


# Our modes and the baselines by name


def test_baselines_learn_from_the_training_rows_by_station():
    fold = next(by_users(DATA))
    for name in ("log-distance", "k-nn", "kriging", "regression-kriging"):
        (method,) = comparing.methods([name], SETTING)
        found = scored(method, fold)
        wrong = (
            comparing.BASELINES[name].clone().fit(fold.train).predict_links(fold.test)
            - fold.test.gain_db
        )
        assert (found.method, found.model) == (name, "")
        assert found.mae_db == pytest.approx(np.abs(wrong).mean())
    assert comparing.BASELINES["log-distance"].calibrate
    assert comparing.BASELINES["k-nn"].same_station
    assert isinstance(comparing.BASELINES["gradient-boosting"], GradientBoosting)


def test_our_modes_take_the_model_chosen_on_validation_rows_once(monkeypatch):
    calls = []

    def counted(*arguments, **options):
        calls.append(arguments)
        return choose(*arguments, **options)

    monkeypatch.setattr(by_name, "choose", counted)
    names = ["central", "federated", "uniform", "aligned"]
    folds = list(itertools.islice(by_users(DATA), 2))
    setting = replace(SETTING, calibrate=("stations", "devices"))
    found = list(compare(folds, comparing.methods(names, setting)))
    assert len(calls) == 2
    for number, fold in enumerate(folds):
        learned, aside, groups = fold.for_validation()
        assert len(calls[number][0]) == len(learned) < len(fold.train)
        trials = choose(
            learned, aside, SETTING.grid, groups=groups, rounds=3, calibrate=setting.calibrate
        )
        best = preferred(trials).model
        bare = preferred([one for one in trials if one.model.residual is None]).model
        own = {score.method: score for score in found if score.fold == number}
        assert [own[name].model for name in names] == [str(m) for m in (best, best, bare, bare)]
        expected = {
            "central": best.fit(fold.train, SETTING.grid, rounds=3),
            "federated": best.train(
                fold.train, SETTING.grid, rounds=3, seed=0, mechanism=vm.NoNoise(clip=NEVER_CLIPS)
            ).radio_map,
            "uniform": bare.train(
                fold.train, SETTING.grid, rounds=3, seed=0,
                mechanism=vm.UniformNoise(noise_budget=50.0),
            ).radio_map,
            "aligned": bare.train(
                fold.train, SETTING.grid, rounds=3, seed=0,
                mechanism=vm.GeometryAligned(noise_budget=50.0),
            ).radio_map,
        }  # fmt: skip
        for name, radio_map in expected.items():
            wrong = radio_map.predict_links(fold.test) - fold.test.gain_db
            assert own[name].mae_db == pytest.approx(np.abs(wrong).mean(), rel=1e-9), name


def test_fields_are_learned_where_only_sums_are_seen_and_nothing_is_promised(monkeypatch):
    trials = [
        ModelTrial(ModelChoice(obstacles=False, residual=20.0), 1.0, np.full(4, 0.25)),
        ModelTrial(ModelChoice(obstacles=False), 5.0, np.full(4, 1.25)),
    ]
    monkeypatch.setattr(by_name, "choose", lambda *a, **o: trials)
    fold = next(by_users(DATA))
    found = {
        score.method: score.model
        for score in compare([fold], comparing.methods(comparing.OURS, replace(SETTING, rounds=2)))
    }
    with_field, without = "no obstacles, field of 20 m", "no obstacles"
    assert found == {
        "central": with_field,
        "federated": with_field,
        "aggregate": without,
        "uniform": without,
        "aligned": without,
        "one-sum": "",
    }


def test_every_scheme_has_a_choice_of_its_own(monkeypatch):
    calls = []
    trials = [ModelTrial(ModelChoice(obstacles=False), 5.0, np.full(4, 1.25))]
    monkeypatch.setattr(by_name, "choose", lambda own, *a, **o: calls.append(len(own)) or trials)
    folds = [next(by_users(DATA, 3)), next(few_links(DATA, 20, 3)), next(few_links(DATA, 40, 3))]
    list(compare(folds, comparing.methods(["central", "federated"], SETTING)))
    assert len(calls) == 3
    assert calls[1] < 20 < calls[2] < 40 < calls[0]


def test_modes_have_their_mechanisms():
    setting = ComparisonSettings(SCENE.grid, budget=7.0, epsilon=3.0, delta=1e-4)
    assert setting.mechanism("uniform") == vm.UniformNoise(noise_budget=7.0)
    assert setting.mechanism("aligned") == vm.GeometryAligned(noise_budget=7.0)
    assert setting.mechanism("aggregate") == vm.AggregateGaussian(epsilon=3.0, delta=1e-4)
    assert setting.mechanism("federated") == vm.NoNoise(clip=NEVER_CLIPS)


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: comparing.methods(["nonsense"], SETTING), "methods"),
        (lambda: comparing.methods(["k-nn", "central", "k-nn"], SETTING), "methods"),
        (
            lambda: comparing.methods(["aggregate"], replace(SETTING, calibrate=("devices",))),
            "calibrate",
        ),
        (lambda: ComparisonSettings(SCENE.grid, rounds=1), "rounds"),
        (lambda: ComparisonSettings(SCENE.grid, calibrate=("masts",)), "calibrate"),
        (lambda: Splits(("nonsense",)), "schemes"),
        (lambda: Splits(()), "schemes"),
        (lambda: list(Splits(("blocks",), block=0.0).split(DATA)), "block"),
        (lambda: list(Splits(("few",), few=(10**6,)).split(DATA)), "links"),
        (lambda: list(Splits(("users",), folds=31).split(DATA)), "folds"),
    ],
)
def test_wrong_settings_are_errors_that_name_the_parameter(make, parameter):
    with pytest.raises(ConfigurationError) as raised:
        make()
    assert raised.value.parameter == parameter


def test_splits_are_the_folds_of_every_scheme():
    splits = Splits(("few", "users", "blocks"), folds=3, first=2, block=40.0, few=(20, 40), seed=5)
    expected = [
        *itertools.islice(few_links(DATA, 20, 3, seed=5), 2),
        *itertools.islice(few_links(DATA, 40, 3, seed=5), 2),
        *itertools.islice(by_users(DATA, 3, seed=5), 2),
        *itertools.islice(by_blocks(DATA, 3, block=40.0, seed=5), 2),
    ]
    found = list(splits.split(DATA))
    assert [(one.scheme, one.number) for one in found] == [
        (one.scheme, one.number) for one in expected
    ]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.train.gain_db, other.train.gain_db)
        np.testing.assert_array_equal(one.test.gain_db, other.test.gain_db)


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("kriging", "pykrige", "baselines"),
        ("regression-kriging", "pykrige", "baselines"),
        ("gradient-boosting", "sklearn", "learn"),
    ],
)
def test_a_missing_library_is_said_before_the_work(name, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError) as raised:
        comparing.methods([name], SETTING)
    assert raised.value.extra == extra
    others = comparing.methods(["log-distance", "k-nn", "central"], SETTING)
    fold = next(by_users(DATA))
    assert [score.method for score in compare([fold], others)] == [one.name for one in others]


def test_our_maps_are_estimators():
    fold = next(by_users(DATA))
    chosen = ModelChoice(obstacles=False, calibrate=("stations",))
    pooled = PooledMap(SCENE.grid, chosen, rounds=2)
    federated = FederatedMap(SCENE.grid, chosen, 2, mechanism=vm.UniformNoise(), seed=4)
    for estimator in (pooled, federated):
        again = clone(estimator)
        assert again.get_params() == estimator.get_params()
        with pytest.raises(ConfigurationError):
            again.predict_links(fold.test)
        map_ = again.fit(fold.train).radio_map_
        np.testing.assert_array_equal(again.predict_links(fold.test), map_.predict_links(fold.test))
        ends = fold.test.user_xyz, fold.test.bs_xyz
        np.testing.assert_array_equal(again.predict(*ends), map_.predict(*ends))
        assert (again.predict(*ends) != again.predict_links(fold.test)).any()
    assert len(again.run_.history) == 2
