"""Certificates by which nodes of a cluster know each other in TLS. The authority is made from the cluster's key, so
every node can issue its own certificate and check another's, and nobody else can.

`NodeAuthority` is the one place that issues: who else may be one changes here, and not where certificates are used.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hawker.auth.peer_key import authority_key
from hawker.http.mutual_tls import AUTHORITIES, name_of
from hawker.ids import NodeId

_FROM, _UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""A node's clock may be wrong. A key that is taken out of the cluster ends its certificates."""


class NodeAuthority:
    """The authority of one of the cluster's keys. Its own certificate is the same at every node."""

    def __init__(self, key: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(authority_key(key))
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"hawker {self._fingerprint}")])
        self._own = (
            _builder(name, name, self._key, 1)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, None)
        )

    @property
    def _fingerprint(self) -> str:
        return self._key.public_key().public_bytes_raw()[:8].hex()

    @property
    def pem(self) -> str:
        return self._own.public_bytes(Encoding.PEM).decode()

    def issue(self, node: NodeId) -> str:
        """A new key and its certificate, in PEM."""
        key = Ed25519PrivateKey.generate()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name_of(node))])
        certificate = (
            _builder(name, self._own.subject, key, x509.random_serial_number())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name_of(node))]), critical=False)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .sign(self._key, None)
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return private + certificate.public_bytes(Encoding.PEM).decode()


def identity_of(node: NodeId, keys: Sequence[bytes]) -> str:
    """The identity of a node, with which it speaks TLS with the others, in PEM: its key and certificate, and after
    `AUTHORITIES` whom it trusts. The first of the cluster's `keys` issues, all of them are trusted."""
    authorities = [NodeAuthority(key) for key in keys]
    return authorities[0].issue(node) + AUTHORITIES + "".join(each.pem for each in authorities)


class NodePapers:
    """The papers that `identity_of` makes, made again when the cluster's keys are others."""

    def __init__(self, node: NodeId, keys: Callable[[], Sequence[bytes]]) -> None:
        self._node = node
        self._keys = keys
        self._made: tuple[tuple[bytes, ...], str] = ((), "")

    def __call__(self) -> str:
        keys = tuple(self._keys())
        if keys != self._made[0]:
            self._made = (keys, identity_of(self._node, keys))
        return self._made[1]


def _builder(subject: x509.Name, issuer: x509.Name, key: Ed25519PrivateKey, serial: int) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
    )
