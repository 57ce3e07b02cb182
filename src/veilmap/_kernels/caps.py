"""Points moved into the cap around a direction, in whole steps."""

from veilmap._kernels.compiling import njit


@njit(nogil=True, cache=True)
def moved_into_cap(point, contribution, length, along):
    """Point + (along − ⟨v, point⟩) v for the direction v = contribution / length, in place.

    The product is summed with compensation (Neumaier): what floats may change of a point is
    accounted for, and must not grow with the number of entries.
    """
    total, lost = 0.0, 0.0
    for m in range(len(point)):
        product = contribution[m] / length * point[m]
        larger = total + product
        if abs(total) >= abs(product):
            lost += (total - larger) + product
        else:
            lost += (product - larger) + total
        total = larger
    missing = along - (total + lost)
    for m in range(len(point)):
        point[m] += missing * (contribution[m] / length)


@njit(nogil=True, cache=True)
def in_steps(point, steps, farthest, out):
    """Entries cut off at ± farthest, in whole steps."""
    for m in range(len(point)):
        out[m] = round(steps * min(max(point[m], -farthest), farthest))
