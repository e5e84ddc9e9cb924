"""One order of a certificate at a certificate authority (RFC 8555), by the library that certbot is made of. It blocks:
to be called in a thread. It waits for nothing but answers: when the authority is asked again is the caller's.

The node answers for a host name by HTTP-01, at port 80 what the authority asks for; by TLS-ALPN-01, at port 443 in a
certificate; or by DNS-01, in a zone of its own.
"""

import hashlib
import re
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path

import josepy
import requests
from acme import challenges, client, crypto_util, errors, messages
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from josepy import b64, jwa, jwk

from hawker.errors import Unavailable
from hawker.feed import DNS_01, ShownChallenge
from hawker.ids import AppName
from hawker.value_object import ValueObject
from hawker.version import VERSION

_CALL_S = 20
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_MAX_REASON = 500
_TOO_MANY, _LIMITED_S, _MAX_WAIT_S = 429, 3600.0, 7 * 86_400.0
_BINDING_BYTES = 4096
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,200}")


class Authority(ValueObject, frozen=True):
    """`directory` is the URL of its directory; `email` is told of trouble; `ca_file` vouches for its own TLS where the
    host's certificates do not. `key`, 32 bytes, is our account's. `binding_file` has what ties our account to one that
    the authority gave out (RFC 8555, 7.3.4)."""

    directory: str
    email: str | None
    ca_file: Path | None
    key: bytes
    binding_file: Path | None = None


class NotShownError(Unavailable):
    """The authority asked for a proof and did not get it: another kind of proof may do."""


class RateLimitedError(Unavailable):
    """The authority limits our orders: nothing is ordered there for `wait_s` seconds."""

    def __init__(self, reason: str, wait_s: float) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class Issued(ValueObject, frozen=True):
    """A certificate that was issued, in PEM."""

    chain: str
    """The chain of certificates, the host's own certificate first."""
    key: str
    """The private key of the certificate."""


class AcmeOrder:
    """The order of a certificate for one host name of an app. `begin`, then `prove` once the edge shows what `begin`
    gave, then `look` again and again."""

    def __init__(self, authority: Authority, hostname: str, app: AppName) -> None:
        self._authority = authority
        self._hostname = hostname
        self._app = app
        self._key = _pem(ec.generate_private_key(ec.SECP256R1()))
        self._client: client.ClientV2 | None = None
        self._order: messages.OrderResource | None = None
        self._unproved: messages.AuthorizationResource | None = None
        self._asked: messages.ChallengeBody | None = None
        self._response = challenges.HTTP01Response(key_authorization="")
        self._limited_s: float | None = None

    def begin(self, kinds: Sequence[str]) -> ShownChallenge | None:
        """The challenge that is to be shown, of the first of these kinds that the authority offers; none where it still
        knows that the name is ours. Raises `Unavailable` with the authority's own words."""
        try:
            self._client = self._registered()
            self._order = self._client.new_order(crypto_util.make_csr(self._key, domains=[self._hostname]))
            waiting = [each for each in self._order.authorizations if each.body.status != messages.STATUS_VALID]
            if not waiting:
                return None
            offered = {_kind(each): each for each in waiting[0].body.challenges}
            kind = next((each for each in kinds if each in offered), None)
            if kind is None:
                raise Unavailable(f"the certificate authority offers none of {', '.join(kinds)} for this name")
            self._unproved, self._asked = waiting[0], offered[kind]
            token = _token(self._asked)
            key = _account_key(self._authority)
            self._response = challenges.HTTP01Response(key_authorization=f"{token}.{_thumbprint(key)}")
        except _FAILED as error:
            raise self._failed(error) from error
        text = self._response.key_authorization
        answer = b64.b64encode(hashlib.sha256(text.encode()).digest()).decode() if kind == DNS_01 else text
        return ShownChallenge(hostname=self._hostname, token=token, answer=answer, app=self._app, kind=kind)

    def prove(self) -> None:
        """Have the authority look at what is shown. Raises `Unavailable`."""
        assert self._client is not None, "begun"
        if self._asked is None:
            return
        try:
            self._client.answer_challenge(self._asked, self._response)
        except _FAILED as error:
            raise self._failed(error) from error

    def look(self) -> Issued | float:
        """The answer to how far the authority is: the certificate, or for how many seconds it wishes not to be asked.
        Raises `Unavailable`."""
        assert self._client is not None, "begun"
        try:
            if self._unproved is not None:
                there, said = self._client.poll(self._unproved)
                if there.body.status == messages.STATUS_PENDING:
                    return _wish_of(said)
                if there.body.status != messages.STATUS_VALID:
                    raise errors.ValidationError([there])
                self._unproved = None
            return self._order_looked_at(self._client)
        except _FAILED as error:
            raise self._failed(error) from error

    def _order_looked_at(self, api: client.ClientV2) -> Issued | float:
        assert self._order is not None, "begun"
        said = _read(api, self._order.uri)
        there = messages.Order.from_json(said.json())
        if there.status == messages.STATUS_INVALID:
            raise errors.Error(f"the order failed: {there.error or 'no reason was given'}")
        if there.status == messages.STATUS_READY:
            api.begin_finalization(self._order)
            return 0.0
        if there.status == messages.STATUS_VALID and there.certificate is not None:
            return Issued(chain=_read(api, there.certificate).text, key=self._key.decode())
        return _wish_of(said)

    def _registered(self) -> client.ClientV2:
        found = _network(self._authority)
        found.session.hooks["response"].append(self._note_limit)
        return _registered(self._authority, found)

    def _note_limit(self, response: requests.Response, **_: object) -> None:
        if response.status_code == _TOO_MANY:
            self._limited_s = _wait_of(response, _LIMITED_S)

    def _failed(self, error: Exception) -> Unavailable:
        if isinstance(error, errors.ValidationError):
            return NotShownError(_reason(error))
        if self._limited_s is not None:
            return RateLimitedError(_reason(error), self._limited_s)
        return Unavailable(_reason(error))


def renewal_time(authority: Authority, chain: str) -> float | None:
    """The time at which the authority wants this certificate renewed (RFC 9773), a moment of its window drawn by lot,
    Unix seconds; none where it does not say. Raises `Unavailable`."""
    try:
        net = _network(authority)
        directory = client.ClientV2.get_directory(authority.directory, net)
        at, _ = client.ClientV2(directory, net).renewal_time(chain.encode())
    except _FAILED as error:
        raise Unavailable(_reason(error)) from error
    return None if at is None else at.timestamp()


_NOT_ACME = (LookupError, TypeError, AttributeError, ValueError)
"""The errors that the library raises on JSON that is not what it looks for."""
_FAILED = (errors.Error, messages.Error, josepy.errors.Error, requests.RequestException, OSError, *_NOT_ACME)


def _account_key(authority: Authority) -> jwk.JWK:
    scalar = int.from_bytes(authority.key, "big") % (_P256_ORDER - 1) + 1
    return jwk.JWKEC(key=ec.derive_private_key(scalar, ec.SECP256R1()))


def _network(authority: Authority) -> client.ClientNetwork:
    verify = str(authority.ca_file) if authority.ca_file is not None else True
    return client.ClientNetwork(
        _account_key(authority),
        alg=jwa.ES256,
        verify_ssl=verify,  # type: ignore[arg-type]  # a path, too, as requests has it
        user_agent=f"hawker/{VERSION}",
        timeout=_CALL_S,
    )


def _registered(authority: Authority, net: client.ClientNetwork) -> client.ClientV2:
    directory = client.ClientV2.get_directory(authority.directory, net)
    found, binding = client.ClientV2(directory, net), None
    if authority.binding_file is not None:
        binding = _binding(authority.binding_file, _account_key(authority), directory)
    wanted = messages.NewRegistration.from_data(
        email=authority.email, external_account_binding=binding, terms_of_service_agreed=True
    )
    try:
        found.new_account(wanted)
    except errors.ConflictError as error:  # we have been here before
        found.query_registration(messages.RegistrationResource(uri=error.location, body=messages.Registration()))
    return found


def _binding(file: Path, key: jwk.JWK, directory: messages.Directory) -> dict[str, object]:
    with file.open() as opened:
        words = opened.read(_BINDING_BYTES).split()
    if len(words) != 2:
        raise ValueError(f"{file} does not have two words: the key id and the HMAC key of the account")
    return dict(messages.ExternalAccountBinding.from_data(key.public_key(), words[0], words[1], directory))


def _kind(asked: messages.ChallengeBody) -> str:
    """The library knows no TLS-ALPN-01."""
    chall = asked.chall
    return str(chall.jobj.get("type") if isinstance(chall, challenges.UnrecognizedChallenge) else chall.typ)


def _token(asked: messages.ChallengeBody) -> str:
    chall = asked.chall
    found = chall.jobj.get("token") if isinstance(chall, challenges.UnrecognizedChallenge) else chall.encode("token")
    if not isinstance(found, str) or not _TOKEN.fullmatch(found):
        raise ValueError("the authority's token is malformed")
    return found


def _thumbprint(key: jwk.JWK) -> str:
    return b64.b64encode(key.thumbprint(hash_function=hashes.SHA256)).decode()


def _read(api: client.ClientV2, url: str) -> requests.Response:
    """By a POST of nothing (RFC 8555, 6.3)."""
    return api.net.post(url, None, new_nonce_url=api.directory["newNonce"])


def _wish_of(said: requests.Response) -> float:
    return _wait_of(said, 0.0)


def _wait_of(said: requests.Response, unsaid_s: float) -> float:
    """Seconds of its Retry-After; `unsaid_s` where it has none that can be read."""
    text = said.headers.get("Retry-After", "").strip()
    try:
        if text.isdecimal():
            wait_s = float(text)
        else:
            now = parsedate_to_datetime(said.headers.get("Date", ""))
            wait_s = parsedate_to_datetime(text).timestamp() - now.timestamp()
    except (TypeError, ValueError, OverflowError):
        wait_s = unsaid_s
    return min(max(wait_s, 0.0), _MAX_WAIT_S)


def _reason(error: Exception) -> str:
    """In the authority's words where it has any."""
    if isinstance(error, errors.ValidationError):
        said = [each.error for one in error.failed_authzrs for each in one.body.challenges if each.error is not None]
        if said:
            return f"{said[0].detail}"[:_MAX_REASON]
    return f"{error}"[:_MAX_REASON] or type(error).__name__


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
