"""The token itself: a header and caveats, signed by a chain of HMAC-SHA256 over their bytes as they were received.

The first link is keyed by the issuer's key, each next one by the tag before it, and only the last tag is in the token.
So its holder can add a caveat and cannot take one away (Birgisson et al., "Macaroons", NDSS 2014). The bytes that are
checked are never decoded and encoded again.
"""

import base64
import binascii
import hashlib
import hmac

import msgspec

from hawker.auth.caveat import Caveat, decode, encode
from hawker.value_object import ValueObject

PREFIX = "hwk_"
VERSION = 1
MAX_TEXT = 8192
MAX_CAVEATS = 64
NONCE_BYTES = 16
_KEY_LABEL = b"hawker macaroon key 1"
_ID_BYTES = 12


class Header(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """`key` names the issuer's key, `nonce` makes the token unlike any other; `issued_at` is Unix seconds."""

    version: int
    """The version of the token's form; one that is not known here is refused."""
    key: bytes
    nonce: bytes
    issued_at: int


class _Body(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    header: bytes
    caveats: tuple[bytes, ...]
    tag: bytes


_header = msgspec.msgpack.Decoder(Header)
_body = msgspec.msgpack.Decoder(_Body)
_encoder = msgspec.msgpack.Encoder()


class Macaroon(ValueObject, frozen=True):
    """`raw_header` and `raw_caveats` are the signed bytes; `header` and `caveats` what they say."""

    raw_header: bytes
    raw_caveats: tuple[bytes, ...]
    tag: bytes
    """The signature over header and caveats, which who adds a caveat signs on from."""
    header: Header
    caveats: tuple[Caveat, ...]

    def __repr__(self) -> str:
        return f"Macaroon({self.id})"  # a tag in a log would be a key

    @property
    def id(self) -> str:
        return token_id(self.tag)


def key_of(root_token: str) -> bytes:
    """The key that a node's root token stands for: whoever has that token can make every other."""
    return hmac.digest(root_token.encode(), _KEY_LABEL, "sha256")


def key_name(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()[:4]


def token_id(tag: bytes) -> str:
    """The id that names a token without giving it away. Revoking it ends this token and all that were narrowed from
    it."""
    return hashlib.sha256(tag).digest()[:_ID_BYTES].hex()


def is_token_id(text: str) -> bool:
    return len(text) == 2 * _ID_BYTES and set(text) <= set("0123456789abcdef")


def mint(key: bytes, nonce: bytes, issued_at: int) -> Macaroon:
    """A token that may do everything: narrow it."""
    header = Header(version=VERSION, key=key_name(key), nonce=nonce, issued_at=issued_at)
    raw = _encoder.encode(header)
    return Macaroon(raw, (), hmac.digest(key, raw, "sha256"), header, ())


def narrow(token: Macaroon, *caveats: Caveat) -> Macaroon:
    """The token with more caveats. Needs no key. Raises `ValueError` when they are too many."""
    raw, tag = token.raw_caveats, token.tag
    for caveat in caveats:
        data = encode(caveat)
        raw, tag = (*raw, data), hmac.digest(tag, data, "sha256")
    if len(raw) > MAX_CAVEATS:
        raise ValueError(f"a token has at most {MAX_CAVEATS} caveats")
    return Macaroon(token.raw_header, raw, tag, token.header, (*token.caveats, *caveats))


def chain(key: bytes, token: Macaroon) -> tuple[str, ...] | None:
    """The ids of the tokens that this one was narrowed from, its own last; None when it was not signed by `key`."""
    tag = hmac.digest(key, token.raw_header, "sha256")
    ids = [token_id(tag)]
    for data in token.raw_caveats:
        tag = hmac.digest(tag, data, "sha256")
        ids.append(token_id(tag))
    return tuple(ids) if hmac.compare_digest(tag, token.tag) else None


def to_text(token: Macaroon) -> str:
    body = _encoder.encode(_Body(header=token.raw_header, caveats=token.raw_caveats, tag=token.tag))
    return PREFIX + base64.urlsafe_b64encode(body).rstrip(b"=").decode()


def from_text(text: str) -> Macaroon:
    """Reads a token and checks no signature. Raises `ValueError` when it is none, or says what is not known here."""
    if not text.startswith(PREFIX) or len(text) > MAX_TEXT:
        raise ValueError("not a token of this kind")
    packed = text.removeprefix(PREFIX)
    try:
        data = base64.b64decode(packed + "=" * (-len(packed) % 4), altchars=b"-_", validate=True)
        body = _body.decode(data)
        header = _header.decode(body.header)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not a token of this kind: {error}") from error
    if header.version != VERSION:
        raise ValueError(f"a token of version {header.version}; known here: {VERSION}")
    if len(body.caveats) > MAX_CAVEATS:
        raise ValueError(f"a token has at most {MAX_CAVEATS} caveats")
    return Macaroon(body.header, body.caveats, body.tag, header, tuple(map(decode, body.caveats)))
