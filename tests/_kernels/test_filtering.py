"""The filter over gradients: scipy's, symmetric, and the same on listed cells as on rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from veilmap._kernels.filtering import taps
from veilmap.model.filtering import filtered

SHAPES = st.tuples(st.integers(1, 30), st.integers(1, 30))
WIDTHS = st.floats(0.05, 8.0)


@given(SHAPES, WIDTHS, st.integers(0, 2**32 - 1))
def test_it_is_scipys(shape, width, seed):
    """Also on maps that are smaller than the filter, which are reflected several times."""
    rows = np.random.default_rng(seed).normal(size=(3, shape[0] * shape[1]))
    wanted = [gaussian_filter(row.reshape(shape), width).ravel() for row in rows]
    np.testing.assert_allclose(filtered(rows, shape, width), wanted, rtol=0, atol=1e-13)


@given(SHAPES, WIDTHS, st.integers(0, 2**32 - 1))
def test_it_is_symmetric_and_lengthens_nothing(shape, width, seed):
    """⟨F a, b⟩ = ⟨a, F b⟩, which attacks rest on, and ‖F a‖ ≤ ‖a‖."""
    a, b = np.random.default_rng(seed).normal(size=(2, shape[0] * shape[1]))
    fa, fb = filtered(np.array([a, b]), shape, width)
    assert fa @ b == pytest.approx(a @ fb, abs=1e-10 * np.linalg.norm(a) * np.linalg.norm(b))
    assert np.linalg.norm(fa) <= (1 + 1e-12) * np.linalg.norm(a)


def test_no_width_changes_no_bit_and_rows_stay_as_they_were():
    rows = np.random.default_rng(0).normal(size=(2, 12))
    before = rows.copy()
    assert len(taps(0.0)) == 0
    np.testing.assert_array_equal(filtered(rows, (3, 4), 0.0), before)
    assert not np.array_equal(filtered(rows, (3, 4), 1.0), before)
    np.testing.assert_array_equal(rows, before)


def test_what_is_alike_everywhere_stays():
    np.testing.assert_allclose(filtered(np.full((1, 77), 3.0), (7, 11), 2.5), 3.0, rtol=1e-14)
