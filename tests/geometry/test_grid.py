import numpy as np
import pytest
from hypothesis import given, settings

import naive
import veilmap as vm
from refusals import refused
from strategies import grids_and_links
from veilmap.errors import ConfigurationError

GRID = vm.Grid(cell_size=2.0, shape=(4, 5), origin=(10.0, 20.0))


def cells_under(grid, user, bs):
    found = vm.trace(grid, user, bs)
    return list(zip(found.cells.tolist(), found.chords, found.heights, strict=True))


@given(grids_and_links())
@settings(max_examples=400)
def test_traversal_equals_sorted_crossings(case):
    grid, user, bs = case
    expected = naive.crossings(grid, user, bs)
    if np.hypot(*(user - bs)[:2]) < 1e-6:
        return  # vertical links have tests of their own
    found = cells_under(grid, user, bs)
    if [cell for cell, *_ in found] != [cell for cell, *_ in expected]:
        # Rounding may only move a link that runs within 1e-6 of a grid line or corner.
        assert abs(sum(c for _, c, _ in found) - sum(c for _, c, _ in expected)) < 1e-6
        step = (user - bs)[:2] / grid.cell_size
        assert np.abs(step).min() < 1e-6 or min(c for _, c, _ in found + expected) < 1e-6
        return
    np.testing.assert_allclose([c for _, c, _ in found], [c for _, c, _ in expected], atol=1e-7)
    np.testing.assert_allclose([z for *_, z in found], [z for *_, z in expected], atol=1e-5)


@given(grids_and_links())
@settings(max_examples=150)
def test_traversal_agrees_with_dense_sampling(case):
    grid, user, bs = case
    length = np.hypot(*(user - bs)[:2])
    if length < 1e-3 or np.abs((user - bs)[:2]).min() < 1e-3:
        return  # along a line between cells, sampling belongs to either side by rounding
    spacing = length / 20_001
    sampled = naive.sampled_cells(grid, user, bs)
    found = {cell: (chord, z) for cell, chord, z in cells_under(grid, user, bs)}
    for cell in sampled.keys() | found.keys():
        chord, z = found.get(cell, (0.0, np.nan))
        sampled_chord, sampled_z = sampled.get(cell, (0.0, np.nan))
        assert abs(chord - sampled_chord) <= 2 * spacing
        if sampled_chord > 20 * spacing:
            assert abs(z - sampled_z) <= 2 * spacing * abs((user - bs)[2]) / length + 1e-9


@given(grids_and_links())
@settings(max_examples=300)
def test_every_cell_once_and_chords_fill_the_part_over_the_grid(case):
    grid, user, bs = case
    found = cells_under(grid, user, bs)
    cells = [cell for cell, *_ in found]
    assert len(cells) == len(set(cells))
    assert all(0 <= cell < grid.cells for cell in cells)
    if grid.contains(user[:2]) and grid.contains(bs[:2]):
        length = np.hypot(*(user - bs)[:2])
        assert sum(chord for _, chord, _ in found) == pytest.approx(length, abs=1e-7)
        assert found


@given(grids_and_links())
@settings(max_examples=300)
def test_reversing_a_link_gives_the_same_bits(case):
    grid, user, bs = case
    one, other = vm.trace(grid, user, bs), vm.trace(grid, bs, user)
    np.testing.assert_array_equal(one.cells, other.cells)
    np.testing.assert_array_equal(one.chords, other.chords)
    np.testing.assert_array_equal(one.heights, other.heights)


def test_both_ends_in_one_cell():
    assert cells_under(GRID, [10.5, 20.5, 1.0], [11.5, 20.5, 3.0]) == [(0, 1.0, 2.0)]


def test_vertical_link_is_over_its_foot_at_mid_height():
    assert cells_under(GRID, [13.0, 21.0, 1.0], [13.0, 21.0, 5.0]) == [(1, 0.0, 3.0)]


def test_zero_length_link_is_over_its_cell():
    assert cells_under(GRID, [13.0, 21.0, 1.5], [13.0, 21.0, 1.5]) == [(1, 0.0, 1.5)]


def test_vertical_link_off_the_grid_has_no_cells():
    assert cells_under(GRID, [9.9, 21.0, 1.0], [9.9, 21.0, 5.0]) == []


def test_link_along_an_inner_line_is_over_the_eastern_cells():
    found = cells_under(GRID, [12.0, 20.0, 0.0], [12.0, 28.0, 8.0])
    assert [cell for cell, *_ in found] == [1, 6, 11, 16]
    assert [z for *_, z in found] == [1.0, 3.0, 5.0, 7.0]


def test_link_along_the_outer_edge_is_over_the_cells_it_borders():
    found = cells_under(GRID, [20.0, 20.0, 0.0], [20.0, 28.0, 8.0])
    assert [cell for cell, *_ in found] == [4, 9, 14, 19]


def test_link_through_corners_skips_the_touched_cells():
    found = cells_under(GRID, [10.0, 20.0, 0.0], [18.0, 28.0, 8.0])
    assert [cell for cell, *_ in found] == [0, 6, 12, 18]
    np.testing.assert_allclose([chord for _, chord, _ in found], 2 * np.sqrt(2))


def test_only_the_part_over_the_grid_counts():
    found = cells_under(GRID, [0.0, 21.0, 0.0], [40.0, 21.0, 40.0])
    assert [cell for cell, *_ in found] == [0, 1, 2, 3, 4]
    np.testing.assert_allclose([z for *_, z in found], [11, 13, 15, 17, 19])


def test_link_that_misses_the_grid_has_no_cells():
    assert cells_under(GRID, [0.0, 0.0, 1.0], [40.0, 5.0, 1.0]) == []
    assert cells_under(GRID, [0.0, 19.0, 1.0], [40.0, 19.0, 1.0]) == []
    assert cells_under(GRID, [8.0, 22.0, 0.0], [12.0, 18.0, 0.0]) == []  # touches a corner
    assert cells_under(GRID, [0.0, 0.0, 1.0], [1.0, 1e-3, 9.0]) == []  # ends far before it
    assert cells_under(GRID, [0.0, 40.0, 1.0], [1.0, 42.0, 9.0]) == []  # towards in x, away in y


@pytest.mark.parametrize("far", [1e4, 1e6, 1e8])
def test_links_from_very_far_stay_on_the_grid(far):
    rng = np.random.default_rng(0)
    grid = vm.Grid(0.5, (60, 80), (1000.0, -700.0))
    inside = rng.uniform([1000, -700, 0], [1040, -670, 0], (500, 3))
    angle = rng.uniform(0, 2 * np.pi, 500)
    away = far * np.column_stack([np.cos(angle), np.sin(angle), np.zeros(500)])
    found = vm.trace(grid, inside - away, inside + away + [0, 0, 30.0])
    assert found.cells.min() >= 0
    assert found.cells.max() < grid.cells
    assert (np.diff(found.offsets) > 0).all()
    assert found.chords.max() <= 0.5 * np.sqrt(2) * 1.01


def test_cell_of_covers_the_closed_grid():
    assert GRID.cell_of([[10, 20], [20, 28], [12, 22], [9.99, 21]]).tolist() == [0, 19, 6, -1]


def test_covering_holds_all_points():
    points = np.random.default_rng(0).uniform(-50, 80, (100, 2))
    grid = vm.Grid.covering(points, 3.0, margin=5.0)
    assert grid.contains(points).all()
    assert grid.contains(points.min(axis=0) - 4.9)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"cell_size": 0}, ["cell_size", 0]),
        ({"cell_size": float("nan")}, ["cell_size", "nan"]),
        ({"shape": (0, 3)}, ["shape", 0]),
        ({"shape": (2.5, 3)}, ["shape", 2.5]),
        ({"shape": (10**5, 10**5)}, ["100000 x 100000", "cell_size"]),
        ({"shape": (3,)}, ["shape", "(rows, columns)"]),
        ({"origin": ("a", 0)}, ["origin", "'a'"]),
    ],
)
def test_a_wrong_grid_is_refused_in_words(arguments, named):
    with refused(ConfigurationError, *named):
        vm.Grid(**arguments)


def test_links_that_do_not_pair_up_are_refused():
    with refused(ConfigurationError, "user_xyz", "(3, 3)", "bs_xyz", "(2, 3)"):
        vm.trace(GRID, np.zeros((3, 3)), np.zeros((2, 3)))
    with refused(ConfigurationError, parameter="user_xyz"):
        vm.trace(GRID, [np.nan, 0, 0], [0, 0, 0])
