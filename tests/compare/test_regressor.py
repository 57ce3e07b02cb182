"""The radio map as a scikit-learn estimator: its conventions, and what it is worth."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import BaggingRegressor
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import veilmap as vm
from veilmap.errors import ConfigurationError, DataError

NAMES = ["user_x", "user_y", "user_z", "bs_x", "bs_y", "bs_z"]


def columns_of(data, *, ids=False):
    columns = [data.user_xyz, data.bs_xyz] + [data.bs[:, None], data.device[:, None]] * ids
    return np.hstack(columns).astype(float)


@pytest.fixture(scope="module")
def town():
    scene = vm.Scene.synthetic(1, cell_size=10.0)
    return scene.measure(users=12, links_per_user=10, places_per_user=2, seed=0)


@pytest.fixture(scope="module")
def city():
    scene = vm.Scene.synthetic(1, base_stations=20)
    return scene.measure(users=100, links_per_user=15, seed=0)


def quick(**other):
    return vm.RadioMapRegressor(**({"cell_size": 20.0, "rounds": 4, "random_state": 0} | other))


# ---- scikit-learn's own checks


class Lifted(vm.RadioMapRegressor):
    """The same on links made from any columns, so that checks with other columns apply."""

    def _link_columns(self, X):  # noqa: N803
        ends = np.tanh(X[:, np.arange(6) % X.shape[1]] / 10)
        return super()._link_columns(ends * [100, 100, 1, 100, 100, 1] + [0, 0, 1.5, 200, 100, 30])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # such links have no gains to learn
        return tags


# `Lifted` passes them.
OTHER_COLUMNS = [
    "check_fit_score_takes_y",
    "check_estimators_overwrite_params",
    "check_dont_overwrite_parameters",
    "check_estimators_fit_returns_self",
    "check_readonly_memmap_input",
    "check_n_features_in_after_fitting",
    "check_positive_only_tag_during_fit",
    "check_estimators_dtypes",
    "check_dtype_object",
    "check_pipeline_consistency",
    "check_estimators_nan_inf",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_regressors_train",
    "check_regressor_data_not_an_array",
    "check_regressors_no_decision_function",
    "check_supervised_y_2d",
    "check_regressors_int",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_fit2d_1sample",
    "check_dict_unchanged",
    "check_fit_idempotent",
    "check_fit_check_is_fitted",
    "check_n_features_in",
    "check_fit2d_predict1d",
]


def cannot_apply(estimator):
    if isinstance(estimator, Lifted):
        return {"check_regressor_data_not_an_array": "gains above 60 dB"}
    return dict.fromkeys(OTHER_COLUMNS, "not six columns")


@parametrize_with_checks(
    [Lifted(cell_size=50.0, rounds=2), vm.RadioMapRegressor(cell_size=50.0, rounds=2)],
    expected_failed_checks=cannot_apply,
    xfail_strict=True,
)
def test_scikit_learns_conventions_are_kept(estimator, check):
    check(estimator)


# ---- The same as by hand


@pytest.mark.parametrize("mechanism", [None, vm.GeometryAligned(noise_budget=10)])
def test_it_predicts_what_training_by_hand_predicts(town, mechanism):
    ids = ("stations", "devices")
    data = replace(town, device=town.user % 3)
    mine = vm.RadioMapRegressor(
        cell_size=8.0, margin=5.0, degrees=3, calibrate=ids, rounds=6, mechanism=mechanism,
        users="groups", random_state=7,
    ).fit(columns_of(data, ids=True), data.gain_db, groups=data.user)  # fmt: skip
    ends = np.vstack([data.user_xyz, data.bs_xyz])[:, :2]
    step = vm.NoiseAwareStep(start_propagation=vm.Propagation.of_degrees(3), start_theta_rate=2.0)
    run = vm.train(
        data,
        vm.Grid.covering(ends, 8.0, 5.0),
        mechanism=mechanism,
        rounds=6,
        seed=7,
        model=vm.Model(step=step, calibrate=ids),
    )
    assert mine.radio_map_.grid == run.radio_map.grid
    np.testing.assert_array_equal(
        mine.predict(columns_of(data, ids=True)), run.radio_map.predict_links(data)
    )
    assert mine.n_iter_ == 6


def test_rows_at_one_place_are_one_user_unless_groups_say_otherwise(town):
    links, noisy = columns_of(town), vm.UniformNoise(noise_budget=10)
    places = np.unique(town.user_xyz, axis=0, return_inverse=True)[1].reshape(-1)
    assert len(np.unique(places)) == 24
    by_place = quick(mechanism=noisy).fit(links, town.gain_db)
    named = quick(mechanism=noisy).fit(links, town.gain_db, groups=places)
    np.testing.assert_array_equal(by_place.predict(links), named.predict(links))
    by_user = quick(mechanism=noisy).fit(links, town.gain_db, groups=town.user)
    assert not np.array_equal(by_user.predict(links), named.predict(links))


def test_noise_follows_random_state(town):
    links, noisy = columns_of(town), vm.UniformNoise(noise_budget=10)

    def learned(random_state):
        model = quick(mechanism=noisy, random_state=random_state)
        return model.fit(links, town.gain_db).predict(links)

    np.testing.assert_array_equal(learned(1), learned(1))
    drawn = (learned(np.random.RandomState(3)) for _ in range(2))
    np.testing.assert_array_equal(*drawn)
    for one, other in ((1, 2), (None, None)):
        assert not np.array_equal(learned(one), learned(other))


def test_repeated_rows_count_once(town):
    links, gain = columns_of(town), town.gain_db
    once = quick().fit(links, gain)
    twice = quick().fit(np.tile(links, (2, 1)), np.tile(gain, 2))
    np.testing.assert_array_equal(once.predict(links), twice.predict(links))
    bagged = BaggingRegressor(quick(), n_estimators=2, random_state=0).fit(links, gain)
    assert np.isfinite(bagged.predict(links)).all()


# ---- Among scikit-learn's tools


def test_it_is_cloned_pickled_and_set_like_any_other(town):
    links = columns_of(town)
    model = quick(mechanism=vm.GeometryAligned(noise_budget=3), calibrate=()).set_params(degrees=4)
    fitted = model.fit(links, town.gain_db)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(links), fitted.predict(links))
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "radio_map_")
    assert fitted.radio_map_.propagation.laws == 4


def test_frames_are_taken_with_their_names(town):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(columns_of(town), columns=NAMES)
    gain = pandas.Series(town.gain_db)
    users = pandas.Series([f"user {number}" for number in town.user])
    model = quick().fit(frame, gain, groups=users)
    assert model.feature_names_in_.tolist() == NAMES
    plain = quick().fit(frame.to_numpy(), town.gain_db, groups=town.user)
    np.testing.assert_allclose(model.predict(frame), plain.predict(frame.to_numpy()))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[NAMES[::-1]])


def test_a_search_in_a_pipeline_passes_users_on(town):
    def to_metres(links):
        return 1000.0 * links

    model = make_pipeline(FunctionTransformer(to_metres), quick(users="groups"))
    search = GridSearchCV(
        model, {"radiomapregressor__degrees": [2, 3]}, cv=GroupKFold(3), error_score="raise"
    )
    kilometres = columns_of(town) / 1000.0
    search.fit(kilometres, town.gain_db, groups=town.user, radiomapregressor__groups=town.user)
    assert np.isfinite(search.best_score_)
    extent = np.array(search.best_estimator_[-1].radio_map_.grid.extent)
    assert np.ptp(extent[:2]) > 100


def test_a_search_tells_whether_to_calibrate(town):
    links = columns_of(replace(town, device=town.user % 2), ids=True)
    gain = town.gain_db + np.where(town.user % 2, 20.0, 0.0)
    options = {"calibrate": [(), ("devices",)]}
    search = GridSearchCV(quick(rounds=60), options, cv=GroupKFold(3), error_score="raise")
    assert search.fit(links, gain, groups=town.user).best_params_ == {"calibrate": ("devices",)}


@pytest.mark.parametrize("routed", [False, True])
def test_cross_validation_passes_users_on(town, routed):
    own = {"params": {"groups": town.user}} | ({} if routed else {"groups": town.user})
    with sklearn.config_context(enable_metadata_routing=routed):
        model = quick(users="groups")
        scores = cross_val_score(
            model.set_fit_request(groups=True) if routed else model,
            columns_of(town), town.gain_db, cv=GroupKFold(3), error_score="raise", **own,
        )  # fmt: skip
    assert scores.shape == (3,)


# ---- What it is worth


def test_it_beats_a_constant_and_neighbours_on_users_never_seen(city):
    models = {
        "map": vm.RadioMapRegressor(cell_size=5.0, rounds=80, random_state=0),
        "constant": DummyRegressor(),
        "neighbours": KNeighborsRegressor(),
    }
    scores = {
        name: cross_val_score(
            model, columns_of(city), city.gain_db, groups=city.user, cv=GroupKFold(3)
        ).mean()
        for name, model in models.items()
    }
    assert scores["constant"] < 0.1
    assert scores["map"] > scores["neighbours"] + 0.1, scores
    assert scores["map"] > 0.5, scores


def test_gains_far_from_the_start_are_reached(city):
    links = columns_of(city)
    for shift in (-20.0, 20.0):
        gain = city.gain_db + shift
        assert vm.RadioMapRegressor(cell_size=10.0).fit(links, gain).score(links, gain) > 0.65


def test_an_offset_of_a_kind_of_device_is_learned(city):
    data = replace(city, device=np.where(city.user % 3 == 0, 11, 4))
    links, gain = columns_of(data, ids=True), data.gain_db - 8.0 * (data.device == 11)
    model = vm.RadioMapRegressor(
        cell_size=10.0, calibrate=("devices",), rounds=80, random_state=0
    ).fit(links, gain)
    offsets = model.radio_map_.offsets
    assert offsets.stations == ()
    assert offsets.devices == (4, 11)
    assert offsets.values[1] - offsets.values[0] == pytest.approx(-8.0, abs=1.0)
    other = links.copy()
    other[:, 7] = np.where(links[:, 7] == 4, 11, 4)
    change = np.where(links[:, 7] == 4, 1, -1) * (offsets.values[1] - offsets.values[0])
    np.testing.assert_allclose(model.predict(other) - model.predict(links), change)
    other[:, 7] = 99
    unknown = model.radio_map_.predict(data.user_xyz, data.bs_xyz)
    np.testing.assert_array_equal(model.predict(other), unknown)


# ---- Wrong use


@pytest.mark.parametrize(
    "options",
    [
        {"users": "rows"},
        {"users": "groups"},
        {"calibrate": "devices"},
        {"calibrate": None},
        {"calibrate": ("phones",)},
        {"calibrate": ("stations",)},  # X has no such column
        {"calibrate": ["devices"]},
        {"mechanism": "aligned"},
        {"mechanism": vm.NoNoise},
        {"rounds": 0},
        {"cell_size": -1},
        {"margin": -1},
    ],
)
def test_wrong_parameters_are_refused_in_fit(town, options):
    with pytest.raises(ConfigurationError) as raised:
        quick(**options).fit(columns_of(town), town.gain_db)
    assert [raised.value.parameter] == list(options)


def test_degrees_and_random_states_that_there_are_not_are_refused_in_fit(town):
    for wrong in ({"degrees": 5}, {"random_state": "dice"}):
        with pytest.raises(ValueError, match=str(*wrong.values())):
            quick(**wrong).fit(columns_of(town), town.gain_db)


def test_wrong_tables_are_refused(town):
    links, gain = columns_of(town), town.gain_db
    again, wild = np.vstack([links, links[:1]]), np.append(gain, gain[0])
    wild[5] = 99.0
    for wrong, values, options in (
        (np.resize(links, (len(links), 5)), gain, {}),
        (np.resize(links, (len(links), 9)), gain, {}),
        (np.column_stack([links, gain]), gain, {}),  # ids are whole numbers
        (links, gain, {"groups": [1, 2, 3]}),
        (links, 100.0 - gain, {}),
        (again, wild, {}),
    ):
        with pytest.raises(DataError):
            quick().fit(wrong, values, **options)
    with pytest.raises(DataError, match=r"\(row 5\)$"):  # the repeated row is not among them
        quick().fit(again, wild)


def test_importing_veilmap_leaves_scikit_learn_alone():
    code = (
        "import sys, veilmap as vm\n"
        "assert 'RadioMapRegressor' in dir(vm) and 'RadioMapRegressor' in vm.__all__\n"
        "assert 'sklearn' not in sys.modules\n"
        "assert not hasattr(vm, 'RadioMapClassifier')\n"
        "vm.RadioMapRegressor\n"
        "assert 'sklearn' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_scikit_learn_a_line_says_what_to_install():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import veilmap as vm\n"
        "try:\n    vm.RadioMapRegressor\n"
        "except vm.VeilmapError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert "pip install 'veilmap[learn]'" in done.stdout
    assert done.stdout.count("\n") == 1


# ---- the field


def test_a_field_alone_learns_at_once_and_knows_how_far_readings_lie(city):
    links, y = columns_of(city, ids=True), city.gain_db
    rng = np.random.default_rng(0)
    tested = rng.permutation(len(y)) < len(y) // 4
    shared = {"cell_size": 10.0, "calibrate": ("stations",), "obstacles": False}
    plain = vm.RadioMapRegressor(**shared).fit(links[~tested], y[~tested])
    model = vm.RadioMapRegressor(**shared, residual=15.0).fit(links[~tested], y[~tested])
    gain, deviation = model.predict(links[tested], return_std=True)
    wrong = np.abs(gain - y[tested])
    assert model.n_iter_ == 1
    assert wrong.mean() < 0.9 * np.abs(plain.predict(links[tested]) - y[tested]).mean()
    np.testing.assert_array_equal(gain, model.predict(links[tested]))
    # 375 links: the share within has a standard error of 1.1 %.
    assert 0.91 < (wrong <= 1.96 * deviation).mean() < 0.99
    with pytest.raises(ConfigurationError):
        plain.predict(links[tested], return_std=True)
