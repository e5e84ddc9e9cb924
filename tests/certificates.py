"""Certificates for tests: an authority of their own, and what it issues."""

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

BEGIN, END = datetime(2020, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@cache
def authority() -> tuple[Any, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder().subject_name(_name("Test Root")).issuer_name(_name("Test Root"))
    builder = builder.public_key(key.public_key()).serial_number(1).not_valid_before(BEGIN).not_valid_after(END)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return key, builder.sign(key, hashes.SHA256())


def root_pem() -> str:
    return authority()[1].public_bytes(Encoding.PEM).decode()


def new_key(kind: str = "p256") -> Any:
    if kind.startswith("rsa"):
        return rsa.generate_private_key(65537, int(kind.removeprefix("rsa")))
    if kind == "ed25519":
        return Ed25519PrivateKey.generate()
    return ec.generate_private_key({"p256": ec.SECP256R1(), "p384": ec.SECP384R1(), "p521": ec.SECP521R1()}[kind])


def key_pem(key: Any, passphrase: bytes | None = None) -> str:
    how: KeySerializationEncryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    return str(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how).decode())


def issued(
    *names: str,
    key: Any = None,
    begin: datetime = BEGIN,
    end: datetime = END,
    alternative: bool = True,
) -> tuple[str, str]:
    """A chain of the host's certificate and the root, and its key, both PEM. Without `alternative` names the first is
    the common name only."""
    key = key or new_key()
    root_key, root = authority()
    builder = x509.CertificateBuilder().subject_name(_name(names[0])).issuer_name(root.subject)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(begin).not_valid_after(end)
    if alternative:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), False)
    leaf = builder.sign(root_key, hashes.SHA256())
    return leaf.public_bytes(Encoding.PEM).decode() + root_pem(), key_pem(key)


def soon(days: int) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)
