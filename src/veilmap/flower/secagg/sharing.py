"""Shamir's secret sharing, fast enough for cohorts of hundreds.

Flower 1.41 splits secrets by a library that multiplies in GF(2^128) bit by bit: with a hundred
nodes that takes each of them seconds a round. Here numbers are taken modulo the prime
2^521 − 1, which Python multiplies by itself.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence

_PRIME = 2**521 - 1
_CHUNK = 64  # bytes of the secret in a number
_NUMBER = 66  # bytes of a number below the prime
_TRIES = 100  # to find those that are right among shares of which some are wrong
_INDEX = 4  # bytes that say whose share it is, and how long the secret is


def create_shares(secret: bytes, threshold: int, num: int) -> list[bytes]:
    """``num`` shares of a secret, any ``threshold`` of which give it back and fewer nothing.

    Share x is the value at x of a random polynomial of degree threshold − 1 whose value at 0 is
    the secret, for every chunk of it.
    """
    framed = len(secret).to_bytes(_INDEX, "little") + secret
    framed += bytes(-len(framed) % _CHUNK)
    shares = [bytearray((x + 1).to_bytes(_INDEX, "little")) for x in range(num)]
    for start in range(0, len(framed), _CHUNK):
        constant = int.from_bytes(framed[start : start + _CHUNK], "little")
        polynomial = [*(secrets.randbelow(_PRIME) for _ in range(threshold - 1)), constant]
        for x, share in enumerate(shares, start=1):
            value = 0
            for coefficient in polynomial:  # Horner's rule, highest power first
                value = (value * x + coefficient) % _PRIME
            share.extend(value.to_bytes(_NUMBER, "little"))
    return [bytes(share) for share in shares]


def combine_shares(share_list: Sequence[bytes]) -> bytes:
    """The secret of enough shares; a ValueError where they do not belong together."""
    places = [int.from_bytes(share[:_INDEX], "little") for share in share_list]
    chunks = (len(share_list[0]) - _INDEX) // _NUMBER
    if len(set(places)) < len(places) or any(len(s) != len(share_list[0]) for s in share_list):
        raise ValueError("the shares do not belong together")
    weights = _weights_at_0(places)
    framed = b""
    for chunk in range(chunks):
        begin = _INDEX + chunk * _NUMBER
        values = (int.from_bytes(share[begin : begin + _NUMBER], "little") for share in share_list)
        number = sum(w * value for w, value in zip(weights, values, strict=True)) % _PRIME
        if number.bit_length() > 8 * _CHUNK:
            raise ValueError("the shares do not belong together")
        framed += number.to_bytes(_CHUNK, "little")
    length = int.from_bytes(framed[:_INDEX], "little")
    if length > len(framed) - _INDEX:
        raise ValueError("the shares do not belong together")
    return framed[_INDEX : _INDEX + length]


def recovered(
    shares: Mapping[int, bytes], threshold: int, fits: Callable[[bytes], bool]
) -> tuple[bytes | None, set[int]]:
    """The secret that ``fits``, of shares by who gave them, and who gave wrong ones.

    All shares together give it only if all are right. If some are not, so many of them as are
    needed are tried without the others, until these are among the others.
    """
    secret = _fitting([*shares.values()], fits)
    if secret is not None:
        return secret, set()
    givers = sorted(shares)
    for used in _choices(givers, threshold):
        secret = _fitting([shares[giver] for giver in used], fits)
        if secret is not None:
            known = [shares[giver] for giver in used[1:]]
            others = set(givers) - set(used)
            return secret, {o for o in others if _fitting([*known, shares[o]], fits) is None}
    return None, set()


def _choices(givers: Sequence[int], threshold: int) -> Iterator[Sequence[int]]:
    """Ways to take so many: without a few neighbours each, then at random."""
    around, spare = [*givers, *givers], len(givers) - threshold
    if spare <= 0:
        return
    for start in range(0, len(givers), spare):
        yield around[start : start + threshold]
    generator = secrets.SystemRandom()
    for _ in range(_TRIES):
        yield generator.sample(givers, threshold)


def _fitting(shares: Sequence[bytes], fits: Callable[[bytes], bool]) -> bytes | None:
    """What shares give together, if it is what was looked for."""
    try:
        secret = combine_shares(shares)
    except ValueError:
        return None
    return secret if fits(secret) else None


def _weights_at_0(places: Sequence[int]) -> list[int]:
    """Lagrange's weights: Π x_j / (x_j − x_i) over j ≠ i."""
    weights = []
    for i, here in enumerate(places):
        above, below = 1, 1
        for j, there in enumerate(places):
            if j != i:
                above = above * there % _PRIME
                below = below * (there - here) % _PRIME
        weights.append(above * pow(below, -1, _PRIME) % _PRIME)
    return weights
