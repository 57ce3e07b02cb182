"""The extendable-output function: HMAC-SHA-256 gives a key, AES-128 in counter mode bytes.

Every use has a domain separation tag, so that bytes for one never serve another. Names, numbers and
layouts are those of draft-chen-cfrg-vdaf-pine (Pine32HmacSha256Aes128) and, below 8, of Prio3 in
draft-irtf-cfrg-vdaf.
"""

import hmac
from enum import IntEnum

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from veilmap.collection.shares import ELEMENT_BYTES, PRIME

SEED_BYTES = 32
_VERSION = 1
_ALGORITHM = 0xFFFF1005
_SPARE = 64  # elements: one word in 4,096 is no element and is skipped

Field = NDArray[np.uint64]
"""Elements to compute with: words below q, of which two can be multiplied."""


class Usage(IntEnum):
    """What the bytes are for."""

    MEASUREMENT_SHARE = 1
    PROOF_SHARE = 2
    JOINT_RANDOMNESS = 3
    PROVE_RANDOMNESS = 4
    QUERY_RANDOMNESS = 5
    JOINT_SEED = 6
    JOINT_PART = 7
    WRAPAROUND_RANDOMNESS = 8
    WRAPAROUND_SEED = 9
    WRAPAROUND_PART = 10


def expanded_bytes(seed: bytes, usage: Usage, binder: bytes, count: int) -> bytes:
    """The first ``count`` bytes that seed, usage and binder expand to."""
    return bytes(_stream(seed, usage, binder).update(bytes(count)))


def derived_seed(seed: bytes, usage: Usage, binder: bytes) -> bytes:
    """A seed that depends on another, a usage and what it is bound to."""
    return expanded_bytes(seed, usage, binder, SEED_BYTES)


def expanded(seed: bytes, usage: Usage, binder: bytes, count: int) -> Field:
    """``count`` uniform elements: words of the stream, little-endian, without those not below q."""
    stream = _stream(seed, usage, binder)
    found: list[Field] = []
    missing = count
    while missing > 0:
        zeros = bytes(ELEMENT_BYTES * (missing + missing // 1024 + _SPARE))
        words = np.frombuffer(stream.update(zeros), dtype="<u4")
        found.append(words[words < PRIME][:missing].astype(np.uint64))
        missing -= len(found[-1])
    return np.concatenate(found) if found else np.zeros(0, dtype=np.uint64)


def _stream(seed: bytes, usage: Usage, binder: bytes):  # type: ignore[no-untyped-def]
    """AES-128 in counter mode with key and first block from HMAC(seed, tag | binder)."""
    tag = _VERSION.to_bytes(1) + _ALGORITHM.to_bytes(4) + usage.to_bytes(2)
    digest = hmac.digest(seed, len(tag).to_bytes(1) + tag + binder, "sha256")
    return Cipher(algorithms.AES(digest[:16]), modes.CTR(digest[16:])).encryptor()
