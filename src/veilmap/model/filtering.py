"""The Gaussian filter over gradients of h that clients apply before they clip."""

import numpy as np

from veilmap._kernels.filtering import filter_rows, taps
from veilmap._util.arrays import Array, Floats
from veilmap._util.threads import even_parts, run_parts


def filtered(rows: Array, shape: tuple[int, int], width: float) -> Floats:
    """Rows of a map, (n, M), each filtered with a standard deviation of ``width`` cells."""
    result, weights = np.array(rows, dtype=np.float64, order="C"), taps(width)
    if len(weights) == 0:
        return result

    def part(start: int, stop: int) -> None:
        filter_rows(start=start, stop=stop, rows=result, shape=shape, taps=weights)

    run_parts(part, even_parts(len(result)))
    return result
