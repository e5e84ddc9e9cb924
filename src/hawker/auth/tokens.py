"""Who may call, and what: the node's root token, made at first boot, the macaroons that were made from it, and which of
them were revoked.

Verified with nothing but the root token and the list of what was revoked. The format is `macaroon.py`'s.
"""

import hmac
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from hawker.api.contract.token import MAX_NOTE
from hawker.api.grant import ROOT, Everything, Grant
from hawker.auth import caveat
from hawker.auth.macaroon import PREFIX, Macaroon, chain, from_text, key_name, key_of, mint
from hawker.clock import Clock
from hawker.errors import CannotStart, Forbidden, QuotaExceeded, Unauthorized
from hawker.log import Secret
from hawker.permission import Attempt, words_of
from hawker.record.node import REVOKED, Revocation
from hawker.store.contract import Store, Tx
from hawker.value_object import ValueObject

MAX_SHOWN = 100
"""The most revocations that a node keeps of tokens that were narrowed from one: anybody who holds it makes any number
of them, and revokes each by showing it."""
_SKEW_S = 86_400.0
"""The seconds for which a revocation is kept after its token has expired here, at least: clocks of nodes differ."""


class ShownToken(ValueObject, frozen=True, kw_only=True):
    """A token that is to be revoked because its holder shows it."""

    text: Secret
    """The token itself."""
    first: str
    """The id of the token that it was narrowed from first, which no holder can change; its own id where it was not."""
    expires: float | None = None
    """When it ends by itself, Unix seconds; None for never."""


class Ended(Protocol):
    """The tokens that were revoked, as `tokens` and the answers about tokens ask for them."""

    def __call__(self, ids: Sequence[str]) -> bool: ...

    async def add(self, token_id: str, *, by: str, note: str = "", shown: ShownToken | None = None) -> Revocation:
        """Revokes a token, durable when this returns; the first revocation stands. Raises `QuotaExceeded` for one that
        is `shown` when too many that were narrowed from the same one were."""

    def list(self) -> Iterable[Revocation]: ...


class Revocations:
    """Keeps `Ended` for one node."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._shown: Counter[str] | None = None

    def __call__(self, ids: Sequence[str]) -> bool:
        return any(self._store.get(REVOKED, token_id) is not None for token_id in ids)

    async def add(self, token_id: str, *, by: str, note: str = "", shown: ShownToken | None = None) -> Revocation:
        """The revocation of a token that was narrowed from none stands for those of all that were narrowed from it."""
        there = self._store.get(REVOKED, token_id)
        if there is not None:
            return there
        first = "" if shown is None else shown.first
        expires = None if shown is None else shown.expires
        counted = self._counted()
        gone = [each.token_id for each in self.list() if each.first == token_id] if counted.pop(token_id, 0) else []
        if first not in ("", token_id):
            if counted[first] >= MAX_SHOWN:
                gone = self._expired(first)
            if counted[first] - len(gone) >= MAX_SHOWN:
                raise QuotaExceeded(f"{MAX_SHOWN} tokens that were narrowed from {first} were revoked: revoke that one")
            counted[first] += 1 - len(gone)
        by, note = by[:MAX_NOTE], note[:MAX_NOTE]
        made = Revocation(token_id=token_id, at=self._clock.now(), by=by, note=note, first=first, expires=expires)

        def write(tx: Tx) -> None:
            tx.put(REVOKED, token_id, made)
            for each in gone:
                tx.delete(REVOKED, each)

        await self._store.write(write)
        return made

    def _expired(self, first: str) -> list[str]:
        """The revoked tokens narrowed from that one that end by themselves everywhere."""
        before = self._clock.now() - _SKEW_S
        return [
            each.token_id
            for each in self.list()
            if each.first == first and each.expires is not None and each.expires < before
        ]

    def _counted(self) -> Counter[str]:
        """The revocations of shown tokens, by the id of the token that each was narrowed from first."""
        if self._shown is None:
            self._shown = Counter(each.first for each in self.list() if each.first not in ("", each.token_id))
        return self._shown

    def list(self) -> Iterator[Revocation]:
        return (revocation for _, revocation in self._store.scan(REVOKED))


MAX_OFFERED = 16
_SCHEMES = ("bearer", "flyv1")  # in any case, as RFC 9110 has it

OrgOf = Callable[[str], str | None]
"""A function from an app's name to its organization; None when there is no such app."""
Revoked = Callable[[Sequence[str]], bool]
"""Whether one of these ids was revoked."""


def load_or_create_token(path: Path, clock: Clock) -> Secret:
    """The token in `path`; at first boot a new one of 256 bits, written with mode 0600 and synced before use."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _load(path)
    token = f"{PREFIX}{clock.token_bytes(32).hex()}"
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{token}\n")
        file.flush()
        os.fsync(file.fileno())
    return Secret(token)


def _load(path: Path) -> Secret:
    token = path.read_text().strip()
    if not token:
        raise CannotStart(f"the token file {path} is empty: remove it and start again to get a new token")
    return Secret(token)


class Offered(ValueObject, frozen=True):
    """The tokens of a header that are good here: the root token, or macaroons with their chains of ids."""

    root: bool = False
    """The root token was among them: everything is allowed."""
    macaroons: tuple[Macaroon, ...] = ()
    first_id: str = ""
    """The first id of the first one's chain: that of the token that was made from the root token. Everybody who holds a
    part of it has this id in common, and nobody can make another one without the root token."""


class Tokens:
    """Accepts tokens under either scheme that clients use, alone or in a list."""

    def __init__(self, root: Secret, clock: Clock, revoked: Revoked, org_of: OrgOf) -> None:
        self._root = root.reveal().encode()
        self._key = key_of(root.reveal())
        self._clock = clock
        self._revoked = revoked
        self._org_of = org_of

    async def __call__(self, authorization: str | None, source: str) -> Grant:
        """What the caller may do. Raises `Unauthorized` when not one token is good here."""
        offered = self.read(authorization)
        if offered.root:
            return Everything(ROOT)
        return Narrowed(offered, source, self._clock.now(), self._org_of)

    def read(self, authorization: str | None) -> Offered:
        """The tokens that a header brought. Raises `Unauthorized`, with the reason that the last bad token gave."""
        reason = "send the header `Authorization: Bearer TOKEN`"
        good: list[Macaroon] = []
        first_ids: list[str] = []
        for text in _listed(authorization):
            if hmac.compare_digest(text.encode(), self._root):
                return Offered(root=True)
            try:
                token, first_id = self._verified(text)
            except Unauthorized as error:
                reason = str(error)
            else:
                good.append(token)
                first_ids.append(first_id)
        if not good:
            raise Unauthorized(f"no valid token: {reason}")
        return Offered(macaroons=tuple(good), first_id=first_ids[0])

    def mint(self, nonce: bytes) -> Macaroon:
        """A token that may do everything: narrow it before it leaves the process."""
        return mint(self._key, nonce, int(self._clock.now()))

    def _verified(self, text: str) -> tuple[Macaroon, str]:
        """With the first id of its chain."""
        try:
            token = from_text(text)
        except ValueError as error:
            raise Unauthorized("the token is not valid here") from error
        ids = chain(self._key, token)
        if ids is None:
            made = "was changed" if token.header.key == key_name(self._key) else "was made with another root token"
            raise Unauthorized(f"the token is not valid here: it {made}")
        if self._revoked(ids):
            raise Unauthorized("the token was revoked")
        if any(isinstance(each, caveat.Expires) and each.at <= self._clock.now() for each in token.caveats):
            raise Unauthorized("the token has expired")
        return token, ids[0]


def _listed(authorization: str | None) -> list[str]:
    scheme, _, offered = (authorization or "").partition(" ")
    if scheme.lower() not in _SCHEMES:
        return []
    return [token.strip() for token in offered.split(",", MAX_OFFERED)[:MAX_OFFERED]]


class Narrowed:
    """Allows what any one of the tokens allows by itself."""

    root = False

    def __init__(self, offered: Offered, source: str, now: float, org_of: OrgOf) -> None:
        self.tokens = offered.macaroons
        self._first_id = offered.first_id
        self._source = source
        self._now = now
        self._org_of = org_of

    @property
    def name(self) -> str:
        return caveat.holder_of(self.tokens[0].caveats) or f"token {self.tokens[0].id}"

    @property
    def token_ids(self) -> tuple[str, ...]:
        return (self._first_id, *(token.id for token in self.tokens))

    def check(self, attempt: Attempt) -> None:
        self.allowing(attempt)

    def permits(self, attempt: Attempt) -> bool:
        return None in self._refusals(attempt)

    def allowing(self, attempt: Attempt) -> int:
        """The place of the first token that allows it. Raises `Forbidden`."""
        refusals = self._refusals(attempt)
        if None not in refusals:
            what = f"{words_of(attempt.action)} on {_named(attempt)}"
            raise Forbidden(f"this token does not allow {what}; it is limited to: {refusals[0]}")
        return refusals.index(None)

    def _refusals(self, attempt: Attempt) -> list[caveat.Caveat | None]:
        """What stands in the way, for each token; None for one that allows it."""
        whole = replace(attempt, source=self._source, now=self._now)
        by_org = any(caveat.needs_org(token.caveats) for token in self.tokens)
        if by_org and whole.org is None and whole.app is not None:
            whole = replace(whole, org=self._org_of(whole.app))
        return [caveat.refusal(token.caveats, whole) for token in self.tokens]


def _named(attempt: Attempt) -> str:
    for kind, name in (("machine", attempt.machine), ("app", attempt.app), ("org", attempt.org)):
        if name is not None:
            return f"{kind} {name}"
    return "the node"
