"""Candidates for an attacker who asks about the same round again and again."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from veilmap.attacks.candidates import Candidates, Templates
from veilmap.federation.transcript import Transcript
from veilmap.radiomap import RadioMap

# Of a template's largest entry: smaller ones are left out. Even 10,000 of them together hold
# at most a ten-thousandth of its energy.
_FAINT = 1e-4


@dataclass(frozen=True)
class RememberedCandidates(Candidates):
    """Candidates with their templates of one broadcast, made once and kept sparse.

    A gradient is large in few cells: of the 10,000 × 10,000 entries on the paper's grid one
    to four in a hundred are kept, and comparing an upload with all places takes milliseconds
    rather than seconds.
    """

    broadcast: RadioMap | None = None
    kept: Templates | None = field(default=None, repr=False)

    @classmethod
    def answering(
        cls, transcript: Transcript, broadcast: RadioMap, altitude: float
    ) -> "RememberedCandidates":
        """The candidates of a transcript, ready for uploads that answer ``broadcast``."""
        plain = Candidates.of(transcript, altitude)
        facts = (plain.grid, altitude, plain.stations, plain.best_map, plain.bs)
        return cls(*facts, broadcast, _sparse(plain.templates(broadcast), broadcast.grid.cells))

    def templates(self, broadcast: RadioMap) -> Iterator[Templates]:
        """All templates at once; those of another broadcast are made as ever."""
        if self.kept is None or broadcast is not self.broadcast:
            return super().templates(broadcast)
        return iter((self.kept,))


def _sparse(blocks: Iterator[Templates], cells: int) -> Templates:
    """All blocks in one, without entries that do not count."""
    from scipy.sparse import csr_array, vstack

    def without_faint(dense: NDArray[np.float32]) -> csr_array:
        size = np.abs(dense)
        rows, columns = np.nonzero(size > _FAINT * size.max(axis=1, keepdims=True))
        return csr_array((dense[rows, columns], (rows, columns)), shape=(len(dense), cells))

    expected, shifted, products = [], [], []
    for block in blocks:
        expected.append(without_faint(block.expected))
        shifted.append(without_faint(block.shifted))
        products.append(block.products.copy())  # the next block overwrites it
    together = np.concatenate(products)
    own = slice(0, len(together))
    return Templates(own, vstack(expected, "csr"), vstack(shifted, "csr"), together)
