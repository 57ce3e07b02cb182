"""Candidates for an attacker who asks about the same round again and again."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veilmap._kernels import sparse
from veilmap._kernels.arguments import SparseRows
from veilmap._util.threads import even_groups, even_parts, run_parts
from veilmap.attacks.candidates import Candidates, Templates
from veilmap.geometry.grid import offsets_of
from veilmap.model.radio_map import RadioMap

if TYPE_CHECKING:
    from scipy.sparse import csr_array

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
    def answering(cls, plain: Candidates, broadcast: RadioMap) -> "RememberedCandidates":
        """The same candidates, ready for uploads that answer ``broadcast``."""
        facts = (plain.grid, plain.altitude, plain.stations, plain.best_map, plain.bs)
        made = cls(*facts, broadcast, _sparse(plain.templates(broadcast)))
        made.__dict__["gains_at_centres"] = plain.gains_at_centres  # of no broadcast
        return made

    def templates(self, broadcast: RadioMap) -> Iterator[Templates]:
        """All templates at once; those of another broadcast are made as ever."""
        if self.kept is None or broadcast is not self.broadcast:
            return super().templates(broadcast)
        return iter((self.kept,))


@dataclass(frozen=True)
class _SparseTemplates(Templates):
    """Templates whose large entries alone are kept, as compressed rows."""

    def along_expected(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Products of rows (n, M) with the expected gradients, (n, k)."""
        return self._along(self.expected, rows)

    def along_shifted(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The same with what 1 dB adds to them."""
        return self._along(self.shifted, rows)

    @staticmethod
    def _along(kept: "csr_array", rows: NDArray[np.float32]) -> NDArray[np.float32]:
        result = np.empty((len(rows), kept.shape[0]), dtype=np.float32)
        entries = SparseRows(offsets=kept.indptr, columns=kept.indices, values=kept.data)

        def part(start: int, stop: int) -> None:
            sparse.products(start=start, stop=stop, sparse=entries, rows=rows, out=result)

        run_parts(part, even_groups(kept.indptr))
        return result


def _sparse(blocks: Iterator[Templates]) -> Templates:
    """All blocks in one, without entries that do not count."""
    from scipy.sparse import vstack

    expected, shifted, products = [], [], []
    for block in blocks:
        expected.append(_without_faint(block.expected))
        shifted.append(_without_faint(block.shifted))
        products.append(block.products.copy())  # the next block overwrites it
    together = np.concatenate(products)
    own = slice(0, len(together))
    return _SparseTemplates(own, vstack(expected, "csr"), vstack(shifted, "csr"), together)


def _without_faint(dense: NDArray[np.float32]) -> "csr_array":
    from scipy.sparse import csr_array

    counts = np.empty(len(dense), dtype=np.int64)
    parts = even_parts(len(dense))

    def count(start: int, stop: int) -> None:
        sparse.count_large(start=start, stop=stop, rows=dense, share=_FAINT, counts=counts)

    def take(start: int, stop: int) -> None:
        sparse.take_large(start=start, stop=stop, rows=dense, share=_FAINT, out=large)

    run_parts(count, parts)
    offsets = offsets_of(counts)
    large = SparseRows(
        offsets=offsets,
        columns=np.empty(offsets[-1], dtype=np.int32),
        values=np.empty(offsets[-1], dtype=np.float32),
    )
    run_parts(take, parts)
    return csr_array((large.values, large.columns, large.offsets), shape=dense.shape)
