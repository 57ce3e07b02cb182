"""Ed25519 keys by which aggregators and collector know each other, and what they sign."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from veilmap._util import files, limits, reading
from veilmap.collection.report import Refusal
from veilmap.errors import DataError

LARGEST_DELAY = 300.0  # seconds between two hosts' clocks, on a request's way included
SIGNATURE, TIME = "x-veilmap-signature", "x-veilmap-time"


@dataclass(frozen=True)
class SigningKey:
    """A private key, which stays in its owner's folder."""

    _private: Ed25519PrivateKey

    @classmethod
    def new(cls) -> "SigningKey":
        """A fresh one."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> "SigningKey":
        """Read what `save` wrote."""
        try:
            text = reading.read_bytes(path, limits.DESCRIPTION_BYTES).decode()
            return cls(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(text.strip())))
        except ValueError as error:
            raise DataError(f"{path} is no key of an aggregator or collector: {error}") from None

    def save(self, path: Path) -> None:
        """Write it, readable by its owner alone."""
        raw = serialization.Encoding.Raw, serialization.PrivateFormat.Raw
        hidden = self._private.private_bytes(*raw, serialization.NoEncryption())
        files.write_text(hidden.hex() + "\n", path, secret=True)

    @property
    def public(self) -> str:
        """The public half, in hexadecimal digits."""
        raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        return self._private.public_key().public_bytes(*raw).hex()

    def sign(self, what: str, content: bytes) -> str:
        """A signature, in hexadecimal digits; ``what`` keeps those of different things apart."""
        return self._private.sign(_named(what, content)).hex()

    def headers(self, method: str, url: str, body: bytes) -> dict[str, str]:
        """What a request carries so that its receiver, and no other, knows who asks."""
        now = str(round(time.time()))
        return {TIME: now, SIGNATURE: self.sign("request", _request(method, url, now, body))}


def is_signed(public: str, what: str, content: bytes, signature: str) -> bool:
    """Whether the owner of a public key signed it."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), _named(what, content))
    except (InvalidSignature, ValueError):
        return False
    return True


def check_request(
    public: str, method: str, url: str, body: bytes, headers: Mapping[str, str], now: float
) -> None:
    """Refuse a request that the owner of a public key did not sign just now."""
    moment = headers.get(TIME, "")
    if not (moment.isascii() and moment.isdigit() and len(moment) < 12):
        moment = ""
    content = _request(method, url, moment, body)
    signed = is_signed(public, "request", content, headers.get(SIGNATURE, ""))
    if not moment or not signed:
        raise Refusal("not signed", "this request needs the signature of another party", 403)
    late = abs(now - int(moment))
    if late > LARGEST_DELAY:
        raise Refusal(
            "clock",
            f"this request was signed {late:.0f} s from now: set the clocks of both hosts",
            403,
        )


def _request(method: str, url: str, moment: str, body: bytes) -> bytes:
    return f"{method} {url}\n{moment}\n".encode() + hashlib.sha256(body).digest()


def _named(what: str, content: bytes) -> bytes:
    return f"veilmap {what}\0".encode() + content
