"""Certificates that users bring: a chain and its private key, read and judged; and what a server needs to serve them.

Pure but for a memory file: OpenSSL takes a key from a path only, and a key is never written to a disk in clear.
"""

import hashlib
import os
import re
import ssl
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from hawker.errors import Unprocessable
from hawker.value_object import ValueObject

MAX_PEM_BYTES = 64 * 1024
MAX_CERTIFICATES = 10
"""The most certificates in one chain."""
MAX_KEPT_BYTES = 16 * 1024
"""The most bytes of a chain with its key, as it is kept."""
MAX_HOSTNAME = 253
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_RSA_BITS = range(2048, 4097)
_CURVES = ("secp256r1", "secp384r1")
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_SELF_SIGNED_FOR = timedelta(days=3650)
_ACME_IDENTIFIER, _OCTETS = x509.ObjectIdentifier("1.3.6.1.5.5.7.1.31"), 4
_UNREADABLE = (ValueError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension)

_PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | Ed25519PrivateKey


class KeyPair(msgspec.Struct, frozen=True, kw_only=True):
    """A chain, the host's own certificate first, and its private key; both PEM. Never logged, never answered."""

    chain: bytes
    """The chain, in PEM, of at least one certificate."""
    key: bytes
    """The private key; it fits the first certificate."""

    def __repr__(self) -> str:
        return "KeyPair(...)"


class ReadCertificate(ValueObject, frozen=True, kw_only=True):
    """The facts that a chain says of itself. Times are Unix seconds; `kind` is rsa or ecdsa, `authority` who issued
    it."""

    pair: KeyPair
    kind: str
    authority: str
    not_before: float
    """The time from which the first certificate is valid."""
    not_after: float
    """The time until which the first certificate is valid."""


def hostname_of(text: str) -> str:
    """The host name as it is kept and compared: A-labels in lower case, without a dot at the end; the first label may
    be `*`. Its length comes first: to bring 400 KB of accents into their order takes a minute. Raises
    `Unprocessable`."""
    if len(text) > MAX_HOSTNAME + len("*.") + 1:
        raise Unprocessable(f"hostname: longer than {MAX_HOSTNAME} characters")
    name = text.strip().rstrip(".").lower()
    wanted = name.removeprefix("*.")
    try:
        ascii_name = wanted if wanted.isascii() else wanted.encode("idna").decode()
    except UnicodeError as error:
        raise Unprocessable(f"hostname: {text!r:.80} is no host name") from error
    labels = ascii_name.split(".")
    good = len(name) <= MAX_HOSTNAME and all(map(_LABEL.fullmatch, labels)) and not labels[-1].isdigit()
    if not good or (name != wanted and len(labels) < 2):
        raise Unprocessable(f"hostname: {text!r:.80} is no host name: use letters, digits, dashes and dots")
    return ascii_name if name == wanted else f"*.{ascii_name}"


def covers(pattern: str, hostname: str) -> bool:
    """Whether a name of a certificate is good for a host: it is the same, or stands for one label."""
    if pattern == hostname:
        return True
    first, _, rest = hostname.partition(".")
    return pattern.startswith("*.") and pattern[2:] == rest and first not in ("", "*")


def read_certificate(hostname: str, fullchain: str, private_key: str, now: float) -> ReadCertificate:
    """`hostname` as `hostname_of` gave it. Raises `Unprocessable`, naming the field and what to do."""
    chain, key = _chain(fullchain), _key(private_key)
    own = chain[0]
    if own.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) != key.public_key().public_bytes(
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    ):
        raise Unprocessable(
            "private_key: is not the key of the first certificate in fullchain: put the host's own certificate first"
        )
    not_before, not_after = own.not_valid_before_utc.timestamp(), own.not_valid_after_utc.timestamp()
    if now >= not_after:
        raise Unprocessable(f"fullchain: the certificate has expired at {own.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")
    if now < not_before:
        raise Unprocessable(f"fullchain: the certificate is good from {own.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on")
    names = _names(own)
    if not any(covers(name, hostname) for name in names):
        raise Unprocessable(f"fullchain: the certificate is for {_listed(names)}, not for {hostname}")
    _check_order(chain)
    pair = KeyPair(
        chain=b"".join(each.public_bytes(Encoding.PEM) for each in chain),
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
    if len(pair.chain) + len(pair.key) > MAX_KEPT_BYTES:
        raise Unprocessable(f"fullchain: with its key larger than {MAX_KEPT_BYTES} bytes: leave out what clients know")
    _try(pair)
    kind = "rsa" if isinstance(key, rsa.RSAPrivateKey) else "ecdsa"
    return ReadCertificate(pair=pair, kind=kind, authority=_authority(own), not_before=not_before, not_after=not_after)


def expires_at(pair: KeyPair) -> float:
    """Unix seconds; 0 for a chain that cannot be read."""
    try:
        return x509.load_pem_x509_certificate(pair.chain).not_valid_after_utc.timestamp()
    except ValueError:
        return 0.0


def server_context(pair: KeyPair, versions: Iterable[str] = (), alpn: Sequence[str] = ()) -> ssl.SSLContext:
    """The context that ends TLS with this certificate: version 1.2 and 1.3 unless `versions` says less, `alpn` in the
    server's own order. Raises `ssl.SSLError` when OpenSSL takes the pair for none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    wanted = sorted(_VERSIONS[each] for each in versions if each in _VERSIONS) or sorted(_VERSIONS.values())
    context.minimum_version, context.maximum_version = wanted[0], wanted[-1]
    context.set_ciphers(_CIPHERS)
    context.num_tickets = 1  # of TLS 1.3: each costs 25 µs
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    if alpn:
        context.set_alpn_protocols(list(alpn))
    memory = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        data = pair.key + pair.chain
        while data:
            data = data[os.write(memory, data) :]
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)
    return context


def self_signed(name: str, now: float) -> KeyPair:
    """A certificate that no client trusts, for ten years from `now`."""
    return _self_signed(name, now)


def proof_of(hostname: str, key_authorization: str, now: float) -> KeyPair:
    """The certificate that is shown to an authority which asks over TLS whether a name is ours (RFC 8737, 3)."""
    digest = hashlib.sha256(key_authorization.encode()).digest()
    value = x509.UnrecognizedExtension(_ACME_IDENTIFIER, bytes((_OCTETS, len(digest))) + digest)
    return _self_signed(hostname, now, value)


def _self_signed(name: str, now: float, *critical: x509.ExtensionType) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    begin = datetime.fromtimestamp(now, UTC) - timedelta(days=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + _SELF_SIGNED_FOR)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    )
    for extension in critical:
        builder = builder.add_extension(extension, critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    return KeyPair(
        chain=certificate.public_bytes(Encoding.PEM),
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def _chain(text: str) -> list[x509.Certificate]:
    if len(text.encode()) > MAX_PEM_BYTES:
        raise Unprocessable(f"fullchain: larger than {MAX_PEM_BYTES} bytes")
    if text.count("-----BEGIN") > MAX_CERTIFICATES:
        raise Unprocessable(f"fullchain: more than {MAX_CERTIFICATES} certificates")
    try:
        found = x509.load_pem_x509_certificates(text.encode())
        for each in found:  # what is read late is read here
            each.public_key()
            _ = each.extensions
    except _UNREADABLE as error:
        raise Unprocessable(f"fullchain: no certificates in PEM: {error}"[:300]) from error
    return found


def _key(text: str) -> _PrivateKey:
    """OpenSSL's own check of an RSA key takes a third of a second for 4096 bits and a minute for 16,384, so sizes are
    looked at first, and whether its numbers fit together without asking whether its primes are some: a key that is weak
    is so for its owner alone."""
    if len(text.encode()) > MAX_KEPT_BYTES:
        raise Unprocessable(f"private_key: larger than {MAX_KEPT_BYTES} bytes")
    try:
        key = serialization.load_pem_private_key(text.encode(), None, unsafe_skip_rsa_key_validation=True)
    except TypeError as error:
        raise Unprocessable("private_key: has a passphrase: give it without one") from error
    except _UNREADABLE as error:
        raise Unprocessable("private_key: no private key in PEM") from error
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size in _RSA_BITS:
        if not _fits_together(key.private_numbers()):
            raise Unprocessable("private_key: its numbers do not fit together")
        return key
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in _CURVES:
        return key
    if isinstance(key, Ed25519PrivateKey):
        return key
    raise Unprocessable("private_key: must be RSA of 2048 to 4096 bits, ECDSA on P-256 or P-384, or Ed25519")


def _fits_together(numbers: rsa.RSAPrivateNumbers) -> bool:
    p, q, d, public = numbers.p, numbers.q, numbers.d, numbers.public_numbers
    return (
        p * q == public.n
        and min(p, q) > 1
        and all(d * public.e % (prime - 1) == 1 for prime in (p, q))
        and (numbers.dmp1, numbers.dmq1) == (d % (p - 1), d % (q - 1))
        and numbers.iqmp * q % p == 1
    )


def _names(certificate: x509.Certificate) -> list[str]:
    """The alternative names; of a certificate without any the common name."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        found = extension.value.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        found = [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return [name.lower().rstrip(".") for name in found]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"{name:.80}" for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown or "no host"


def _check_order(chain: Sequence[x509.Certificate]) -> None:
    for lower, upper in pairwise(chain):
        try:
            lower.verify_directly_issued_by(upper)
        except (InvalidSignature, TypeError, *_UNREADABLE) as error:
            who = f"{upper.subject.rfc4514_string():.120}"
            raise Unprocessable(
                f"fullchain: {who} did not issue the certificate before it: put them in order"
            ) from error


def _authority(certificate: x509.Certificate) -> str:
    """Who issued it, in a few words."""
    for kind in (NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME):
        for each in certificate.issuer.get_attributes_for_oid(kind):
            return str(each.value)[:120]
    return "unknown"


def _try(pair: KeyPair) -> None:
    """What is taken here shall be served later."""
    try:
        server_context(pair)
    except ssl.SSLError as error:
        raise Unprocessable(f"fullchain: OpenSSL does not serve it: {error.reason or error}") from error
