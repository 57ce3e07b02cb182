"""What can go wrong with a proof, how likely, and parameters that keep it below what is asked for.

*Soundness*: a vector that is too long passes. Randomness that comes from hashes can be tried over
and over before anything is sent, the verifiers' own cannot, see `soundness`. *Zero knowledge*: an
honest vector fails wraparound checks so often that its client draws anew, which depends on the
vector. *Refusal*: an honest report meets a random point that must not be used, and is sent anew.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from veilmap._util import checks as checked
from veilmap.collection.pine.parameters import NormProofs
from veilmap.collection.pine.proof import Shape
from veilmap.collection.shares import PRIME
from veilmap.errors import ConfigurationError

SOUNDNESS = 2.0**-40
"""The chance of a cheating client's report, at most, unless another one is asked for."""

HASHES = 2.0**64
"""What a cheating client is assumed to try beforehand."""

_SPARE_CHECKS = 48  # more than are needed for soundness, so that some may fail
_LARGEST_SIZE = 2**13  # of a proof's polynomials
_MOST_PROOFS = 40
_LEAST = 2.0**-256  # error that may be asked for
_PARTS = 4  # of the soundness error: wraparound checks, norm, and half for the main circuit


@dataclass(frozen=True)
class Errors:
    """Probabilities, at most.

    Parameters
    ----------
    soundness : float
        That a report whose vector is too long is taken, after so many hashes as were assumed.
    zero_knowledge : float
        Statistical distance between what the aggregators see and what they could have made up
        without the vector, beyond what the sum says.
    refusal : float
        That an honest report is refused, and has to be made anew.
    """

    soundness: float
    zero_knowledge: float
    refusal: float

    def delta(self, epsilon: float) -> float:
        """What proofs add to the δ of a sum under ε.

        A simulated view is (ε, δ)-private, and views of neighbours are each ρ from theirs:
        P(V) ≤ P(S) + ρ ≤ e^ε P(S') + δ + ρ ≤ e^ε (P(V') + ρ) + δ + ρ.
        """
        return (1 + math.exp(epsilon)) * self.zero_knowledge


def errors(parameters: NormProofs, hashes: float = HASHES) -> Errors:
    """What can go wrong with proofs of these parameters."""
    points = sum(shape.size for shape in parameters.shapes)
    return Errors(
        _soundness(parameters, hashes),
        _failing(parameters.checks, parameters.successes, _one_fails(parameters)),
        points / PRIME,
    )


def chosen(
    dimension: int,
    bound: int,
    *,
    soundness: float = SOUNDNESS,
    zero_knowledge: float = 2.0**-64,
    hashes: float = HASHES,
) -> NormProofs:
    """The parameters of the smallest reports whose errors are at most those asked for.

    Parameters
    ----------
    dimension : int
    bound : int
        Largest Euclidean norm, in steps of the lattice.
    soundness, zero_knowledge, hashes : float
        See `Errors`.
    """
    soundness = checked.number("soundness", soundness, least=2.0**-128, below=1)
    zero_knowledge = checked.number("zero_knowledge", zero_knowledge, least=_LEAST, below=1)
    hashes = checked.number("hashes", hashes, least=1, most=2.0**128)
    wraps = list(_wraparounds(bound, soundness / _PARTS / hashes, zero_knowledge))
    if not wraps:
        raise ConfigurationError(
            f"no field of 32 bits proves a norm of {bound:,} with these errors", "bound"
        )
    checks, successes, limit = min(wraps, key=lambda one: one[0] * (one[2].bit_length() + 1))
    norm_chunk, norm_proofs = _smallest(dimension, 0, squares=True, error=soundness / _PARTS)
    # Only after the checks it is known how many bits there are.
    trial = NormProofs(
        dimension, bound, _alpha(bound, limit), checks, successes, 1, norm_proofs, 1, norm_chunk
    )
    chunk, proofs = _smallest(
        trial.bits, checks, squares=False, error=2 * soundness / _PARTS, hashes=hashes
    )
    return NormProofs(
        dimension, bound, trial.alpha, checks, successes, proofs, norm_proofs, chunk, norm_chunk
    )


def _soundness(parameters: NormProofs, hashes: float) -> float:
    """Σ of the ways to pass with a vector that is too long ([PINE], theorem 3.14)."""
    wraparound = hashes * _passing(parameters.checks, parameters.successes)
    norm = _identity(parameters.norm) ** parameters.norm_proofs
    constraints = _constraints(parameters.bits, parameters.checks)
    main = _forged(constraints, _identity(parameters.main), parameters.proofs, hashes)
    return min(1.0, wraparound + norm + main)


def _identity(shape: Shape) -> float:
    """P ≠ G(f) of degree 2 (size − 1) agrees at a random point ([BBCGGI19], theorem 4.3)."""
    return 2 * (shape.size - 1) / (PRIME - shape.size)


def _constraints(bits: int, checks: int) -> float:
    """Statements of which one is wrong come to 0, weighed by powers of random elements.

    The count of the reference code (find_wr_params.sage): bits, checks, and four sums of them.
    """
    return (bits + checks + 4) / PRIME


def _forged(lucky: float, blind: float, proofs: int, hashes: float) -> float:
    """All of m proofs pass: some as the joint randomness was tried, others at the random points.

    Each proof's joint randomness suits the cheat with probability a, its random point with b. Of
    H tries the best suits j proofs or more with probability H · Bin(m, a)[≥ j] at most, and the
    others must pass by b^(m − j), once: Σ_j min(1, H Bin(m, a)[≥ j]) b^(m − j).
    """
    return sum(
        min(1.0, hashes * _at_least(suited, proofs, lucky)) * blind ** (proofs - suited)
        for suited in range(proofs + 1)
    )


def _passing(checks: int, successes: int) -> float:
    """So many checks of a vector that wraps around pass: each with 1/2 ([PINE], lemma 3.3)."""
    return _at_least(successes, checks, 0.5)


def _failing(checks: int, successes: int, one: float) -> float:
    """Too few checks of an honest vector pass ([PINE], lemma 3.3)."""
    return _at_least(checks - successes + 1, checks, one)


def _one_fails(parameters: NormProofs) -> float:
    """|⟨z, x⟩| ≥ W: at most 2 exp(−W² / B), as E exp(λ z x) = cosh²(λ x / 2) ≤ exp(λ² x² / 4)."""
    return _tail(parameters.wraparound_bound, parameters.bound)


def _tail(limit: int, bound: int) -> float:
    return min(1.0, 2 * math.exp(-((limit / bound) ** 2)))


def _at_least(least: int, count: int, chance: float) -> float:
    """Probability of so many successes or more among ``count``."""
    return sum(
        math.comb(count, k) * chance**k * (1 - chance) ** (count - k)
        for k in range(least, count + 1)
    )


def _wraparounds(
    bound: int, soundness: float, zero_knowledge: float
) -> Iterator[tuple[int, int, int]]:
    """Checks, successes and W that meet both errors, the fewest checks for each W."""
    needed = math.ceil(-math.log2(soundness))
    limit = 1 << bound.bit_length()
    while 2600 * limit <= PRIME and limit**2 <= 4000 * PRIME:  # lemma 3.3
        for checks in range(needed, needed + _SPARE_CHECKS):
            successes = next(
                one for one in range(checks // 2, checks + 1) if _passing(checks, one) <= soundness
            )
            if _failing(checks, successes, _tail(limit, bound)) <= zero_knowledge:
                yield checks, successes, limit
                break
        limit *= 2


def _alpha(bound: int, limit: int) -> float:
    """α whose wraparound bound is W, whatever rounding does."""
    return (limit - 1.5) / bound


def _smallest(
    first: int, second: int, *, squares: bool, error: float, hashes: float = 1.0
) -> tuple[int, int]:
    """Chunk and number of proofs with the fewest elements in proofs and messages together."""
    best, fewest = None, math.inf
    size = 2
    while size <= _LARGEST_SIZE:
        chunk = _least_chunk(first, second, size - 1)
        calls = -(-first // chunk) + -(-second // chunk)
        shape = Shape(calls, chunk if squares else 2 * chunk, squares)
        lucky = 0.0 if squares else _constraints(first, second)
        for proofs in range(1, _MOST_PROOFS):
            if _forged(lucky, _identity(shape), proofs, hashes) <= error:
                if proofs * (shape.proof + shape.verifier) < fewest:
                    fewest = proofs * (shape.proof + shape.verifier)
                    best = chunk, proofs
                break
        size *= 2
    if best is None:
        raise ConfigurationError("no number of proofs is as sound as that", "soundness")
    return best


def _least_chunk(first: int, second: int, calls: int) -> int:
    """The shortest chunks by which both lists are cut into so many at most."""
    chunk = max(1, -(-(first + second) // calls))
    while -(-first // chunk) + -(-second // chunk) > max(calls, 1 + (second > 0)):
        chunk += 1
    return chunk
