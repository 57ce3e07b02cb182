"""An authority of one's own, and certificates of TLS for servers."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from veilmap._util import files

_PEM = serialization.Encoding.PEM
_AUTHORITY_YEARS = 10
_SIGNS = x509.KeyUsage(
    key_cert_sign=True, crl_sign=True, digital_signature=False, content_commitment=False,
    key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
    decipher_only=False,
)  # fmt: skip


def write_authority(folder: Path) -> None:
    """A new authority: ca.crt goes to all who connect, ca.key stays with the operator."""
    key = ec.generate_private_key(ec.SECP384R1())
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    name = _name(f"veilmap {own.digest.hex()[:16]}")  # one file can hold several authorities
    built = _built(name, name, key.public_key(), days=365 * _AUTHORITY_YEARS)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    built = built.add_extension(own, critical=False).add_extension(_SIGNS, critical=True)
    _write(key, folder / "ca.key", built.sign(key, hashes.SHA384()), folder / "ca.crt")


def write_server(folder: Path, hosts: list[str], days: int, *, out: Path | None = None) -> None:
    """A key and a certificate for a server under its names and addresses.

    The authority is in ``folder``, where they are written as well unless ``out`` is another.
    """
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP384R1())
    names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    built = _built(_name(hosts[0]), authority.subject, key.public_key(), days)
    built = built.add_extension(names, critical=False).add_extension(issuer, critical=False)
    out = folder if out is None else out
    _write(key, out / "server.key", built.sign(signer, hashes.SHA384()), out / "server.pem")


def _built(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(
    key: ec.EllipticCurvePrivateKey, secret: Path, public: x509.Certificate, path: Path
) -> None:
    kind = serialization.PrivateFormat.PKCS8
    private = key.private_bytes(_PEM, kind, serialization.NoEncryption())
    files.write_text(private.decode(), secret, secret=True)
    files.write_text(public.public_bytes(_PEM).decode(), path)
