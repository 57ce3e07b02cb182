"""Who may take part: single-use invitations that cannot be linked to reports, or proof of work.

An invitation is a secret code that the leader changes, once, into a blind signature under the RSA
key of the task (RSABSSA-SHA384-PSS-Deterministic of RFC 9474, as in Privacy Pass). What is signed
is the task's digest and the random id of the report-to-be, which the leader does not see then. So
the signature admits one report, and says nothing of which invitation it came from.
"""

import hashlib
import math
import secrets
from dataclasses import dataclass
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from veilmap._util import checks
from veilmap._util.plain import plain
from veilmap.errors import ConfigurationError, DataError

BITS = 2048  # of an RSA key
EXPONENT = 65537
_SALT = 48  # bytes
_HASH = hashlib.sha384
_LARGEST_WORK = 30  # bits: a quarter of an hour on a phone


class Admission(Protocol):
    """What a report must show, for a task and an id, to be taken."""

    def admits(self, credential: bytes, digest: bytes, report: bytes) -> bool:
        """Whether a credential is good for a report."""
        ...

    @property
    def credential_bytes(self) -> int:
        """Length of a credential."""
        ...


@plain
@dataclass(frozen=True)
class ProofOfWork:
    """Whoever finds a number with SHA-256(…, number) of so many leading 0 bits may take part."""

    bits: int = 16

    def __post_init__(self) -> None:
        bits = checks.whole("bits", self.bits, least=1, most=_LARGEST_WORK)
        object.__setattr__(self, "bits", bits)

    @property
    def credential_bytes(self) -> int:
        """Length of a credential."""
        return 8

    def admits(self, credential: bytes, digest: bytes, report: bytes) -> bool:
        """Whether the work was done for this report."""
        found = hashlib.sha256(_work(digest, report) + credential).digest()
        return int.from_bytes(found) >> (256 - self.bits) == 0

    def solved(self, digest: bytes, report: bytes) -> bytes:
        """A number that does it; about 2^bits tries."""
        begun = hashlib.sha256(_work(digest, report))
        number = 0
        while True:
            tried = begun.copy()
            credential = number.to_bytes(8)
            tried.update(credential)
            if int.from_bytes(tried.digest()[:4]) >> (32 - self.bits) == 0:
                return credential
            number += 1


@plain
@dataclass(frozen=True)
class Invitations:
    """Who has an invitation may take part; ``key`` is the RSA modulus in hexadecimal digits."""

    key: str

    def __post_init__(self) -> None:
        try:
            modulus = int(self.key, 16)
        except (TypeError, ValueError):
            raise ConfigurationError("key must be hexadecimal digits", "key") from None
        if modulus.bit_length() != BITS or modulus % 2 == 0:
            raise ConfigurationError(f"key must be an RSA modulus of {BITS} bits", "key")
        object.__setattr__(self, "key", f"{modulus:x}")

    @property
    def modulus(self) -> int:
        """N."""
        return int(self.key, 16)

    @property
    def credential_bytes(self) -> int:
        """Length of a credential."""
        return BITS // 8

    def admits(self, credential: bytes, digest: bytes, report: bytes) -> bool:
        """Whether the issuer has signed this report's id, without having seen it."""
        key = rsa.RSAPublicNumbers(EXPONENT, self.modulus).public_key()
        mask = padding.PSS(padding.MGF1(hashes.SHA384()), _SALT)
        try:
            key.verify(credential, _token(digest, report), mask, hashes.SHA384())
        except InvalidSignature:
            return False
        return True

    def blinded(self, digest: bytes, report: bytes) -> "Blinded":
        """What to send with an invitation's code, and how to take the blinding off the answer."""
        n = self.modulus
        encoded = int.from_bytes(_pss_encoded(_token(digest, report), BITS - 1))
        while True:
            factor = secrets.randbelow(n - 2) + 2
            if math.gcd(factor, n) == 1:
                break
        hidden = encoded * pow(factor, EXPONENT, n) % n
        return Blinded(hidden.to_bytes(BITS // 8), pow(factor, -1, n), n)


@dataclass(frozen=True)
class Blinded:
    """A token on its way to be signed."""

    message: bytes
    inverse: int  # of the blinding factor
    modulus: int

    def as_text(self) -> str:
        """For a file of the participant's."""
        return f"{self.message.hex()} {self.inverse:x} {self.modulus:x}"

    @classmethod
    def from_text(cls, text: str) -> "Blinded":
        """What `as_text` gave."""
        message, inverse, modulus = text.split()
        return cls(bytes.fromhex(message), int(inverse, 16), int(modulus, 16))

    def finished(self, signature: bytes) -> bytes:
        """The credential: the signature without its blinding."""
        found = int.from_bytes(signature) * self.inverse % self.modulus
        return found.to_bytes(BITS // 8)


@dataclass(frozen=True)
class Issuer:
    """Signs what it cannot read."""

    private: rsa.RSAPrivateKey

    @classmethod
    def new(cls) -> "Issuer":
        """One with a fresh key."""
        return cls(rsa.generate_private_key(EXPONENT, BITS))

    @classmethod
    def load(cls, pem: bytes) -> "Issuer":
        """The one that `pem` describes."""
        try:
            key = serialization.load_pem_private_key(pem, None)
        except ValueError as error:
            raise DataError(f"the issuer's key cannot be read: {error}") from None
        if not isinstance(key, rsa.RSAPrivateKey) or key.key_size != BITS:
            raise DataError(f"the issuer's key is no RSA key of {BITS} bits")
        return cls(key)

    @property
    def pem(self) -> bytes:
        """The private key, for a file."""
        kind = serialization.PrivateFormat.PKCS8
        plain_text = serialization.NoEncryption()
        return self.private.private_bytes(serialization.Encoding.PEM, kind, plain_text)

    @property
    def public(self) -> Invitations:
        """What the task says of it."""
        return Invitations(f"{self.private.public_key().public_numbers().n:x}")

    def can_sign(self, message: bytes) -> bool:
        """Whether this is a number that there is a signature for."""
        return len(message) == BITS // 8 and 0 < int.from_bytes(message) < self.public.modulus

    def signed(self, message: bytes) -> bytes:
        """message^d mod n, computed on a blinded number, so that its time tells nothing of d."""
        own = self.private.private_numbers()
        n, given = own.public_numbers.n, int.from_bytes(message)
        factor = secrets.randbelow(n - 2) + 2
        hidden = given * pow(factor, EXPONENT, n) % n
        # By the Chinese remainder theorem; a fault in one half would tell the key, hence the check.
        m_p, m_q = pow(hidden, own.dmp1, own.p), pow(hidden, own.dmq1, own.q)
        root = m_q + own.q * ((m_p - m_q) * own.iqmp % own.p)
        found = root * pow(factor, -1, n) % n
        if pow(found, EXPONENT, n) != given:
            raise RuntimeError("a signature went wrong and was not given out")
        return found.to_bytes(BITS // 8)


def _work(digest: bytes, report: bytes) -> bytes:
    return b"veilmap work\0" + digest + report


def _token(digest: bytes, report: bytes) -> bytes:
    return b"veilmap token\0" + digest + report


def _pss_encoded(message: bytes, bits: int) -> bytes:
    """EMSA-PSS-ENCODE of RFC 8017, section 9.1.1, with SHA-384 and a random salt."""
    length, digest = (bits + 7) // 8, _HASH(message).digest()
    salt = secrets.token_bytes(_SALT)
    tag = _HASH(bytes(8) + digest + salt).digest()
    block = bytes(length - _SALT - len(tag) - 2) + b"\x01" + salt
    mask = _mgf1(tag, len(block))
    hidden = bytearray(a ^ b for a, b in zip(block, mask, strict=True))
    hidden[0] &= 0xFF >> (8 * length - bits)
    return bytes(hidden) + tag + b"\xbc"


def _mgf1(seed: bytes, length: int) -> bytes:
    """MGF1 of RFC 8017, appendix B.2.1, with SHA-384."""
    blocks = math.ceil(length / _HASH().digest_size)
    return b"".join(_HASH(seed + k.to_bytes(4)).digest() for k in range(blocks))[:length]
