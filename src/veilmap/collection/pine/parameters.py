"""What prover and verifiers of a bounded norm agree on, and the lengths that follow from it."""

import math
from dataclasses import dataclass

from veilmap._util import checks
from veilmap._util.plain import plain
from veilmap.collection.pine.field import LARGEST_TRANSFORM
from veilmap.collection.pine.proof import Shape
from veilmap.collection.shares import PRIME
from veilmap.errors import ConfigurationError

_LARGEST_ALPHA = 1000.0
_MOST = 1000  # wraparound checks; proofs are numbered in one byte


@plain
@dataclass(frozen=True)
class NormProofs:
    """Parameters of PINE over the 32-bit field, for two verifiers.

    Parameters
    ----------
    dimension : int
        d: entries of a vector.
    bound : int
        √B: the largest Euclidean norm of a vector of whole numbers.
    alpha : float
        α: a wraparound check passes if |⟨z, x⟩| is below the power of 2 that follows α √B.
    checks, successes : int
        How many wraparound checks there are, and how many of them must pass.
    proofs, norm_proofs : int
        Independent proofs of all checks but the norm, and of the norm.
    chunk : int
        Products in each call of the gadget of the one.
    norm_chunk : int
        Squares in each call of the gadget of the other.
    """

    dimension: int
    bound: int
    alpha: float
    checks: int
    successes: int
    proofs: int
    norm_proofs: int
    chunk: int
    norm_chunk: int

    def __post_init__(self) -> None:
        for name in ("dimension", "bound", "chunk", "norm_chunk"):
            object.__setattr__(self, name, checks.whole(name, getattr(self, name), least=1))
        alpha = checks.number("alpha", self.alpha, above=0, most=_LARGEST_ALPHA)
        object.__setattr__(self, "alpha", alpha)
        count = checks.whole("checks", self.checks, least=1, most=_MOST)
        object.__setattr__(self, "checks", count)
        passed = checks.whole("successes", self.successes, least=1, most=count)
        object.__setattr__(self, "successes", passed)
        for name in ("proofs", "norm_proofs"):
            repeated = checks.whole(name, getattr(self, name), least=1, most=255)
            object.__setattr__(self, name, repeated)
        self._check_room()

    def _check_room(self) -> None:
        """Conditions of [PINE], figure 1 and lemma 3.3, as the reference code states them."""
        wrap = self.wraparound_bound
        needed = 3 * self.bound**2 + 3, wrap**2 / 4000, 2600 * wrap, 2 * self.checks
        if max(needed) > PRIME:
            raise ConfigurationError(
                f"a norm of {self.bound:,} cannot be proven in a field of {PRIME:,} elements with"
                f" alpha = {self.alpha:g}: take a smaller one",
                "bound",
            )
        if max(self.main.size, self.norm.size) > LARGEST_TRANSFORM:
            raise ConfigurationError("chunks are too short for so many entries", "norm_chunk")

    @property
    def wraparound_bound(self) -> int:
        """W: checks pass whose sum is in −W + 1 … W, so that 2 W sums need log₂ 2 W bits."""
        return 1 << math.ceil(self.alpha * self.bound).bit_length()

    @property
    def norm_bits(self) -> int:
        """Bits of a squared norm, and of what it lacks to B."""
        return (self.bound**2).bit_length()

    @property
    def sum_bits(self) -> int:
        """Bits of what a wraparound check comes to."""
        return (2 * self.wraparound_bound - 1).bit_length()

    @property
    def bits(self) -> int:
        """Elements that must be 0 or 1: squared norm, what it lacks to B, sums, and successes."""
        return 2 * self.norm_bits + (self.sum_bits + 1) * self.checks

    @property
    def measurement(self) -> int:
        """Elements of an encoded measurement."""
        return self.dimension + self.bits

    @property
    def main(self) -> Shape:
        """Of the proofs that bits are bits, the norm is in range, and enough checks pass."""
        calls = -(-self.bits // self.chunk) + -(-self.checks // self.chunk)
        return Shape(calls, 2 * self.chunk, squares=False)

    @property
    def norm(self) -> Shape:
        """Of the proofs that the squared norm is what its bits say."""
        return Shape(-(-self.dimension // self.norm_chunk), self.norm_chunk, squares=True)

    @property
    def shapes(self) -> list[Shape]:
        """Of all proofs, in their order."""
        return self.norm_proofs * [self.norm] + self.proofs * [self.main]

    @property
    def proof_elements(self) -> int:
        """Elements of all proofs."""
        return sum(shape.proof for shape in self.shapes)

    @property
    def message_elements(self) -> int:
        """Elements of a verifier's message."""
        return sum(shape.verifier for shape in self.shapes)
