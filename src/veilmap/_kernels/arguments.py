"""What kernels take and give, in groups with names: arrays that belong together travel together.

Callers fill in groups by keyword, and a kernel takes each group only in its own place, so that
two arrays of one type cannot change places unseen. Nothing here needs Numba.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]


class Frame(NamedTuple):
    """A grid: its south-west corner (m), cells per metre, and how many rows and columns."""

    x: float
    y: float
    per_metre: float
    rows: int
    columns: int


class Terrain(NamedTuple):
    """Obstacles: exp(sharpness (h_m − datum)), the height none comes near, datum, sharpness."""

    raised: Floats
    top: float
    datum: float
    sharpness: float


class Laws(NamedTuple):
    """Propagation: powers of the laws between clear and blocked (none: two laws), and θ."""

    powers: Floats
    theta: Floats


class MapArrays(NamedTuple):
    """A radio map."""

    frame: Frame
    terrain: Terrain
    laws: Laws


class LinkEnds(NamedTuple):
    """Both ends of links, (J, 3) each, in metres."""

    user: Floats
    bs: Floats


class UserLinks(NamedTuple):
    """Links user by user (user i owns offsets[i]:offsets[i + 1]), their ends and gains (dB)."""

    offsets: Ints
    user: Floats
    bs: Floats
    gain: Floats


class Crossings(NamedTuple):
    """The cells under some links, link after link: link j owns offsets[j]:offsets[j + 1].

    Cell numbers, horizontal lengths of the link over them (m), and z_m (m): the link's height over
    the middle of that chord. They go from the link's lower end to its higher one, so that a link
    and its reverse give the same.
    """

    offsets: Ints
    cells: Ints
    chords: Floats
    heights: Floats


class UserGradients(NamedTuple):
    """F_i (N,), ∂F_i/∂h (N, M) and ∂F_i/∂θ (N, P) of every user."""

    losses: Floats
    by_heights: Floats
    by_theta: Floats


class PerUser(NamedTuple):
    """F_i (N,), ∂F_i/∂θ (N, P) and ‖∂F_i/∂h‖ (N,) of users whose gradients are added up."""

    losses: Floats
    by_theta: Floats
    lengths: Floats


class Axes(NamedTuple):
    """Columns' x and rows' y from the middle of the grid, in units of its longer side."""

    x: Floats
    y: Floats


class NoiseShape(NamedTuple):
    """How much noise and where: μ, the weight κ of its variance (0: alike everywhere), axes."""

    budget: float
    kappa: float
    axes: Axes


class NoisePerUser(NamedTuple):
    """Of every user: position (N, 2) on the axes, words of the noise's seed (N, 3)."""

    positions: Floats
    seeds: Words


class Rounding(NamedTuple):
    """To whole numbers: clip, scale, and of every user the largest squared norm and a seed."""

    clip: float
    scale: float
    limits: Floats
    seeds: Words


class SamplingTable(NamedTuple):
    """A cumulative table of 128-bit numbers in two halves, for values from ``first`` on.

    ``guide`` has the entry to begin at for the leading bits of a word, word >> shift.
    """

    high: Words
    low: Words
    guide: Ints
    shift: np.uint64
    first: int


class SparseRows(NamedTuple):
    """Compressed rows: row k owns offsets[k]:offsets[k + 1] of columns and values."""

    offsets: Ints
    columns: NDArray[np.int32]
    values: NDArray[np.float32]


class Sites(NamedTuple):
    """Candidate places (n, 3), stations (B, 3), and the gain between each pair (n, B) in dB."""

    places: Floats
    stations: Floats
    gains: Floats


class Expected(NamedTuple):
    """Expected gradients (n, M), what 1 dB more adds (n, M), and their products (n, 3, blocks)."""

    expected: NDArray[np.float32]
    shifted: NDArray[np.float32]
    products: NDArray[np.float32]


class Uploads(NamedTuple):
    """Uploads (N, M), their noise's variances (N, M), links of each (N,), and the clip."""

    values: Floats
    variances: Floats
    counts: Floats
    clip: float


class ExpectedLinks(NamedTuple):
    """Links of n places to B stations: φ (n, K, B), r (n, R, B) of R rounds, K/R numbers each."""

    by_theta: Floats
    residuals: Floats


class CellsOfGrids(NamedTuple):
    """Places that are cells (m,), those beside them along two axes (2, m), and 1/cells between."""

    own: Ints
    before: Ints
    after: Ints
    scale: Floats


class SumsMoments(NamedTuple):
    """Mean (m, K), noise (m, K, K) and sampling (m, K, K)."""

    mean: Floats
    noise: Floats
    sampling: Floats


class WeightedUploads(NamedTuple):
    """Of N uploads: weighted values (M, N), and the weights of blocks of cells (blocks, N)."""

    values: NDArray[np.float32]
    weights: NDArray[np.float32]


class Matches(NamedTuple):
    """Of n places and N uploads: products with both templates (n, 2, N), norms (n, 3, N)."""

    along: NDArray[np.float32]
    norms: NDArray[np.float32]
