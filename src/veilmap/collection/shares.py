"""Shares of a vector of whole numbers modulo a prime: a seed, and what it leaves to be told.

With v the participant's vector and r the vector that a random 32-byte seed expands to, the leader
gets (v − r) mod q and the helper the seed. Each by itself is independent of v: the leader's is
uniform as far as AES-256 in counter mode is a pseudorandom generator, the helper's is drawn
without v.
"""

import hashlib
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from veilmap._util.arrays import Ints

PRIME = 2**32 - 2**20 + 1
"""q: a 32-bit field in which bounds of shared vectors can be proven (PINE)."""

SEED_BYTES = 32
ELEMENT_BYTES = 4  # little-endian
_SPARE = 64  # elements: one word in 4,096 is no element and is skipped

Elements = NDArray[np.uint32]


def split(vector: Ints, digest: bytes, report: bytes, seed: bytes) -> Elements:
    """The leader's share of a vector whose helper's share is ``seed``."""
    return residues(vector - expanded(seed, digest, report, len(vector)).astype(np.int64))


def expanded(seed: bytes, digest: bytes, report: bytes, count: int) -> Elements:
    """The helper's share: ``count`` elements that depend on seed, task and report alone."""
    key = hashlib.sha256(b"veilmap mask\0" + digest + report + seed).digest()
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    found: list[Elements] = []
    missing = count
    while missing > 0:
        zeros = bytes(ELEMENT_BYTES * (missing + missing // 1024 + _SPARE))
        words = np.frombuffer(stream.update(zeros), dtype="<u4")
        found.append(words[words < PRIME][:missing])
        missing -= len(found[-1])
    return np.concatenate(found) if found else np.zeros(0, dtype=np.uint32)


def to_bytes(elements: Elements) -> bytes:
    """Elements as they travel and are stored: four bytes each, little-endian."""
    return elements.astype("<u4").tobytes()


def from_bytes(content: bytes) -> Elements:
    """The elements that bytes hold; ValueError where there is one that is no residue modulo q."""
    elements = np.frombuffer(content, dtype="<u4")
    if len(elements) and int(elements.max()) >= PRIME:
        raise ValueError(f"an element is not below {PRIME}")
    return elements


def added(total: Elements, *others: Any) -> Elements:
    """The sum modulo q."""
    result = total.astype(np.uint64)
    for other in others:
        result += other
    return (result % np.uint64(PRIME)).astype(np.uint32)


def residues(whole: Ints) -> Elements:
    """Whole numbers modulo q."""
    return (whole % PRIME).astype(np.uint32)


def centred(elements: Elements) -> Ints:
    """The whole numbers of least magnitude that the elements are residues of."""
    whole = elements.astype(np.int64)
    return np.where(whole > PRIME // 2, whole - PRIME, whole)
