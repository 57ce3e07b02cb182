"""A contribution: its bound, its independence of what others may know, and its exact numbers."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilmap as vm
from veilmap.surveys.contribution import ANGLES, CIRCLE, UNIT, contribution
from veilmap.surveys.design import Survey

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))

SURVEY = Survey(
    "test",
    vm.Grid(50.0, (3, 4), (100.0, 200.0)),
    (vm.Station("a", 0.0, 0.0, 10.0), vm.Station("b", 400.0, 300.0, 30.0, azimuth_deg=90.0)),
    participants=10,
    epsilon=2.0,
    delta=1e-6,
)


def plain_contribution(survey, readings):
    """The definition, reading by reading, in plain Python."""
    points, stations = survey.grid.cells, len(survey.stations)
    shares, levels = {}, {}
    for (x, y), name, gain in readings:
        number = [one.id for one in survey.stations].index(name)
        where = np.array([[x, y]])
        rest = gain - float(survey.nominal(np.array([number]), where)[0])
        cells, parts = survey.grid.between_centres(where)
        for cell, part in zip(cells[0].tolist(), parts[0].tolist(), strict=True):
            if part > 0:
                shares.setdefault((number, cell), []).append((part, rest))
        levels.setdefault(number, []).append((1.0, rest))
    entries = []
    for (number, cell), found in sorted(shares.items()):
        entries.append((number * points + cell, max(w for w, _ in found), found, survey.range_db))
    for number, found in sorted(levels.items()):
        place = stations * points + number
        entries.append((place, survey.level_weight, found, 4 * survey.range_db))
    length = math.sqrt(sum(weight * weight for _, weight, _, _ in entries))
    bound = max(survey.clip - math.sqrt(2.0 * len(entries)) / 2, 0.0) * (1 - 2.0**-30)
    vector = [0] * survey.numbers
    for place, weight, found, width in entries:
        turns = sum(w * r for w, r in found) / sum(w for w, _ in found) / width
        angle = math.floor((turns - math.floor(turns)) * 256 + 0.5) % 256
        for part in (0, 1):
            exact = bound / length * weight * int(CIRCLE[angle, part]) / UNIT
            vector[2 * place + part] = math.floor(exact + 0.5)
    return vector


def made(readings):
    xy = np.array([place for place, _, _ in readings]).reshape(-1, 2)
    names, gains = [name for _, name, _ in readings], [gain for _, _, gain in readings]
    return contribution(SURVEY, xy, np.array(names, dtype=np.str_), np.array(gains))


inside = st.tuples(st.floats(100.0, 300.0), st.floats(200.0, 350.0))
usual = st.lists(
    st.tuples(inside, st.sampled_from("ab"), st.floats(-150.0, 0.0)), min_size=1, max_size=12
)


@given(usual)
def test_it_is_what_the_definition_says(readings):
    assert made(readings).vector.tolist() == plain_contribution(SURVEY, readings)


wild = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=300)
@given(st.lists(st.tuples(st.tuples(wild, wild), st.text(max_size=2), wild), max_size=40), usual)
def test_no_input_makes_it_longer_than_the_bound(strange, readings):
    vector = made(strange + readings).vector
    assert vector.dtype == np.int64
    assert vector.shape == (SURVEY.numbers,)
    assert int(vector @ vector) <= SURVEY.clip**2


def test_many_entries_stay_within_the_bound_too():
    generator = np.random.default_rng(0)
    xy = generator.uniform([100, 200], [300, 350], (2000, 2))
    names = generator.choice(["a", "b"], 2000)
    vector = contribution(SURVEY, xy, names, generator.uniform(-150, 0, 2000)).vector
    assert 0.95 * SURVEY.clip <= math.sqrt(vector @ vector) <= SURVEY.clip


@pytest.mark.parametrize("places", [1, 5, 20, 60, 2000])
def test_rounding_on_a_coarse_lattice_makes_it_no_longer(places):
    coarse = replace(SURVEY, grid=vm.Grid(5.0, (30, 40), (100.0, 200.0)), clip=16)
    generator = np.random.default_rng(places)
    xy = generator.uniform([100, 200], [300, 350], (places, 2))
    gains = generator.uniform(-150, 0, places)
    vector = contribution(coarse, xy, np.full(places, "a"), gains).vector
    assert int(vector @ vector) <= coarse.clip**2


def test_a_hundred_readings_in_one_place_count_once():
    once = made([((130.0, 260.0), "a", -80.0)])
    often = made(100 * [((130.0, 260.0), "a", -80.0)])
    assert (once.vector == often.vector).all()
    assert often.used == 100


def test_what_cannot_be_used_is_left_out_and_counted():
    found = made(
        [
            ((130.0, 260.0), "a", -80.0),
            ((1300.0, 260.0), "a", -80.0),
            ((130.0, 260.0), "c", -80.0),
            ((130.0, 260.0), "a", math.nan),
            ((math.inf, 260.0), "a", -80.0),
            ((130.0, 260.0), "a", 1e9),
        ]
    )
    assert (found.used, found.outside, found.unknown, found.unusable) == (1, 1, 1, 3)
    assert (found.vector == made([((130.0, 260.0), "a", -80.0)]).vector).all()


@pytest.mark.parametrize("readings", [[], [((0.0, 0.0), "a", -80.0)]])
def test_nothing_to_say_is_a_vector_like_any_other(readings):
    vector = made(readings).vector
    assert vector.shape == (SURVEY.numbers,)
    assert not vector.any()


def test_angles_are_the_circle_and_never_longer_than_one():
    exact = 2 * np.pi * np.arange(ANGLES) / ANGLES
    assert np.abs(CIRCLE / UNIT - np.column_stack([np.cos(exact), np.sin(exact)])).max() < 1 / UNIT
    assert ((CIRCLE**2).sum(axis=1) <= UNIT**2).all()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda own: own["name"])
def test_published_vectors_are_reproduced(vector):
    from veilmap._util.plain import from_plain

    survey = from_plain(vector["survey"], Survey)
    columns = [vector["readings"][name] for name in ("xy", "bs", "gain_db")]
    found = contribution(survey, *map(np.array, columns)).vector
    numbers = np.flatnonzero(found)
    assert survey.digest == vector["digest"]
    assert dict(zip(numbers.tolist(), found[numbers].tolist(), strict=True)) == {
        int(number): value for number, value in vector["contribution"].items()
    }
