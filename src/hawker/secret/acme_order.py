"""One order of a certificate at a certificate authority (RFC 8555), by the library that certbot is made of. It blocks:
to be called in a thread.

The node answers for a host name by HTTP-01: at port 80, what the authority asks for.
"""

from dataclasses import dataclass
from pathlib import Path

import josepy
import requests
from acme import challenges, client, crypto_util, errors, messages
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from josepy import jwa, jwk

from hawker.errors import Unavailable
from hawker.version import VERSION

_CALL_S = 20
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_MAX_REASON = 500


@dataclass(frozen=True, slots=True)
class Authority:
    """`directory` is the URL of its directory; `email` is told of trouble; `ca_file` vouches for its own TLS where the
    host's certificates do not. `key`, 32 bytes, is our account's."""

    directory: str
    email: str | None
    ca_file: Path | None
    key: bytes


@dataclass(frozen=True, slots=True)
class Issued:
    """PEM."""

    chain: str
    key: str


class AcmeOrder:
    """For one host name. `begin`, then `finish` once the edge shows what `begin` gave."""

    def __init__(self, authority: Authority, hostname: str) -> None:
        self._authority = authority
        self._hostname = hostname
        self._key = _pem(ec.generate_private_key(ec.SECP256R1()))
        self._client: client.ClientV2 | None = None
        self._order: messages.OrderResource | None = None
        self._asked: messages.ChallengeBody | None = None

    def begin(self) -> tuple[str, str] | None:
        """Token and answer to be shown; none where the authority still knows that the name is ours. Raises
        `Unavailable` with the authority's own words."""
        try:
            self._client = _client(self._authority)
            self._order = self._client.new_order(crypto_util.make_csr(self._key, domains=[self._hostname]))
            waiting = [each for each in self._order.authorizations if each.body.status != messages.STATUS_VALID]
            if not waiting:
                return None
            offered = [each for each in waiting[0].body.challenges if isinstance(each.chall, challenges.HTTP01)]
        except _FAILED as error:
            raise Unavailable(_reason(error)) from error
        if not offered:
            raise Unavailable("the certificate authority offers no HTTP-01 for this name")
        self._asked = offered[0]
        _, answer = offered[0].response_and_validation(self._client.net.key)
        return str(offered[0].chall.encode("token")), str(answer)

    def finish(self) -> Issued:
        """Takes 90 s at most (the library's bound), and what its calls take. Raises `Unavailable`."""
        assert self._client is not None and self._order is not None, "begun"
        try:
            if self._asked is not None:
                self._client.answer_challenge(self._asked, self._asked.response(self._client.net.key))
            done = self._client.poll_and_finalize(self._order)
        except _FAILED as error:
            raise Unavailable(_reason(error)) from error
        return Issued(chain=done.fullchain_pem, key=self._key.decode())


_NOT_ACME = (LookupError, TypeError, AttributeError, ValueError)
"""What the library raises on JSON that is not what it looks for."""
_FAILED = (errors.Error, messages.Error, josepy.errors.Error, requests.RequestException, OSError, *_NOT_ACME)


def _client(authority: Authority) -> client.ClientV2:
    scalar = int.from_bytes(authority.key, "big") % (_P256_ORDER - 1) + 1
    key = jwk.JWKEC(key=ec.derive_private_key(scalar, ec.SECP256R1()))
    verify = str(authority.ca_file) if authority.ca_file is not None else True
    net = client.ClientNetwork(
        key,
        alg=jwa.ES256,
        verify_ssl=verify,  # type: ignore[arg-type]  # a path, too, as requests has it
        user_agent=f"hawker/{VERSION}",
        timeout=_CALL_S,
    )
    found = client.ClientV2(client.ClientV2.get_directory(authority.directory, net), net)
    wanted = messages.NewRegistration.from_data(email=authority.email, terms_of_service_agreed=True)
    try:
        found.new_account(wanted)
    except errors.ConflictError as error:  # we have been here before
        found.query_registration(messages.RegistrationResource(uri=error.location, body=messages.Registration()))
    return found


def _reason(error: Exception) -> str:
    """In the authority's words where it has any."""
    if isinstance(error, errors.ValidationError):
        said = [each.error for one in error.failed_authzrs for each in one.body.challenges if each.error is not None]
        if said:
            return f"{said[0].detail}"[:_MAX_REASON]
    return f"{error}"[:_MAX_REASON] or type(error).__name__


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
