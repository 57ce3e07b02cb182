"""Who a node is, and which peers it knows: keys from enrolment, never from the server.

A server that could name a node's peers could invent them, and a sum with invented peers is one
upload. So every node has a *roster*, a text file with one public key a line as OpenSSH writes
them, each followed by its node's name, and by a JSON list of the users that the node speaks for
where that is known beforehand. It comes with the node's own key, by a way that does not
lead over the server, and is the same for everybody: owners of nodes compare its SHA-256.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from veilmap._util import files, limits, reading
from veilmap.errors import ConfigurationError, PrivacyError
from veilmap.federation.messages import ClientId
from veilmap.flower.secagg import account as accounts
from veilmap.privacy.mechanisms import Mechanism

_CURVE = ec.SECP384R1
_ECDSA = ec.ECDSA(hashes.SHA384())


@dataclass(frozen=True)
class Roster:
    """The enrolled nodes' public keys by their names."""

    keys: Mapping[str, ec.EllipticCurvePublicKey] = field(repr=False)
    users: Mapping[str, Collection[ClientId]] = field(default_factory=dict, repr=False)

    @classmethod
    def load(cls, path: Path) -> "Roster":
        """Read a roster; every name and every key stands there once."""
        keys: dict[str, Any] = {}
        users: dict[str, Collection[ClientId]] = {}
        try:
            lines = reading.read_bytes(path, limits.DESCRIPTION_BYTES).decode().splitlines()
            for line in filter(None, map(str.strip, lines)):
                kind, text, name, *speaks_for = line.split(maxsplit=3)
                key = serialization.load_ssh_public_key(f"{kind} {text}".encode())
                if name in keys:
                    raise ValueError(f"{name} is there twice")
                if not is_node_key(key):
                    raise ValueError("nodes have ECDSA keys of 384 bits")
                keys[name] = key
                if speaks_for:
                    users[name] = _users_in(speaks_for[0])
        except (
            ValueError, NotImplementedError, RecursionError, UnsupportedAlgorithm
        ) as error:  # fmt: skip
            raise PrivacyError(f"the roster {path} is not a list of node keys: {error}") from error
        if len({as_text(key) for key in keys.values()}) < len(keys):
            raise PrivacyError(f"the roster {path} has one key under two names")
        return cls(keys, users)

    def name_of(self, key: ec.EllipticCurvePublicKey) -> str:
        """Under which name a key is enrolled."""
        for name, other in self.keys.items():
            if as_text(other) == as_text(key):
                return name
        raise PrivacyError("this node's key is not in its roster: enrol it first")

    def signed(self, name: object, signature: object, message: bytes) -> bool:
        """Whether the node of that name signed the message."""
        key = self.keys.get(name) if isinstance(name, str) else None
        if key is None or not isinstance(signature, bytes):
            return False
        try:
            key.verify(signature, message, _ECDSA)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class Enrolment:
    """A node among its peers.

    Flower authenticates the node by the same private key. What the node has spent (`account`)
    belongs to that key.
    """

    key: ec.EllipticCurvePrivateKey = field(repr=False)
    roster: Roster
    account: Path

    @classmethod
    def load(cls, key: Path, roster: Path, account: Path) -> "Enrolment":
        """What a node's configuration names."""
        try:
            content = reading.read_bytes(key, limits.DESCRIPTION_BYTES)
            own = serialization.load_ssh_private_key(content, None)
        except (ValueError, NotImplementedError, UnsupportedAlgorithm) as error:
            raise PrivacyError(f"{key} is not a node's private key: {error}") from error
        if not isinstance(own, ec.EllipticCurvePrivateKey):
            raise PrivacyError(f"{key} is not an ECDSA key: make one with ssh-keygen -t ecdsa")
        return cls(own, Roster.load(roster), account)

    @cached_property
    def name(self) -> str:
        """What the roster calls this node."""
        return self.roster.name_of(self.key.public_key())

    @property
    def owner(self) -> str:
        """Whose account it is."""
        return fingerprint(self.key.public_key())

    def sign(self, message: bytes) -> bytes:
        """A signature of this node's."""
        return self.key.sign(message, _ECDSA)

    def enter(self, session: int, stage: str, mechanism: Mechanism) -> None:
        """Note durably that this node answers a stage, or refuse it; see `account.enter`."""
        accounts.enter(self.account, self.owner, session, stage, mechanism)


def is_node_key(key: object) -> bool:
    """Whether a public key is of the kind that nodes have, for signatures and for masks."""
    return isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name == _CURVE.name


def write_key(path: Path) -> ec.EllipticCurvePublicKey:
    """Make a node's key pair in OpenSSH's format, ``path`` and ``path``.pub; the public half.

    The file of the public half is the node's line of the roster.
    """
    key = ec.generate_private_key(_CURVE())
    kind, bare = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, kind, bare)
    files.write_text(private.decode(), path, secret=True)
    public = key.public_key()
    write_roster({path.name: public}, path.with_name(path.name + ".pub"))
    return public


def write_roster(
    keys: Mapping[str, ec.EllipticCurvePublicKey],
    path: Path,
    users: Mapping[str, Sequence[ClientId]] | None = None,
) -> None:
    """Write the roster of a federation: each node's public key by its name, and its users."""
    ends = {name: f" {json.dumps(own)}" for name, own in (users or {}).items()}
    lines = (f"{as_text(key)} {name}{ends.get(name, '')}\n" for name, key in keys.items())
    files.write_text("".join(lines), path)


def _users_in(text: str) -> Collection[ClientId]:
    users = json.loads(text)
    if not isinstance(users, list) or not all(type(user) in (int, str) for user in users):
        raise ValueError("after a name stands a list of users")
    return users


def as_text(key: ec.EllipticCurvePublicKey) -> str:
    """A public key as OpenSSH writes it."""
    openssh = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return key.public_bytes(*openssh).decode()


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """What tells keys apart."""
    return hashlib.sha256(as_text(key).encode()).hexdigest()


def enrol(key: Path, account: Path) -> ec.EllipticCurvePublicKey:
    """Make a node's key pair and open its account; the public half is a line for the roster."""
    for path in (key, account):
        if path.exists():
            raise ConfigurationError(
                f"{path} is there already: a new key would part it from its account"
            )
    public = write_key(key)
    accounts.enrol(account, fingerprint(public))
    return public
