"""The broker's answers about tokens, and which tokens no longer count: by the token's nonce, in the node's store."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import instant
from hawker.api.contract.token import (
    AUTHENTICATE_TOKEN,
    AUTHORIZE_TOKEN,
    CREATE_DEPLOY_TOKEN,
    CURRENT_TOKENS,
    LIST_REVOKED,
    REVOKE_TOKEN,
    AuthenticateRequest,
    AuthorizeAnswer,
    AuthorizeRequest,
    CurrentTokens,
    DeployToken,
    DeployTokenRequest,
    RevokedToken,
    RevokedTokens,
    RevokeTokenRequest,
    TokenAccess,
    TokenCaveat,
    TokenCaveats,
    TokenInfo,
    TokenNonce,
    VerifiedToken,
)
from hawker.api.directory import Peers
from hawker.api.grant import ROOT, Grant
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.app import DEFAULT_ORG
from hawker.auth.caveat import Apps, Caveat, Expires, Holder, Machines, Orgs, expiry_of, holder_of
from hawker.auth.macaroon import NONCE_BYTES, Macaroon, is_token_id, narrow, to_text
from hawker.auth.tokens import Ended, Narrowed, Offered, ShownToken, Tokens
from hawker.clock import Clock
from hawker.config.duration import parse_duration
from hawker.errors import BadRequest, NotFound, RateLimited, Unprocessable
from hawker.gateway.rate_limits import TEXT
from hawker.ids import NodeId
from hawker.log import Secret
from hawker.permission import Action, Attempt, actions_of
from hawker.record.node import Revocation
from hawker.token_bucket import Allowance, TokenBuckets


class ToldRevocations(Protocol):
    """What the catalog has of all nodes. `gateway.catalog_directory.CatalogDirectory` keeps it."""

    def is_revoked(self, ids: Sequence[str]) -> bool: ...

    def revocation(self, token_id: str) -> Revocation | None: ...

    def revocations(self) -> Iterable[Revocation]:
        """All of them; of several of one token the first counts."""


class FleetRevocations:
    """Keeps `Ended` for a fleet. `told` is what the catalog has of all nodes; `mine` is kept where this broker's node
    keeps it, and counts here at once."""

    def __init__(self, told: ToldRevocations, mine: Ended) -> None:
        self._told = told
        self._mine = mine

    def __call__(self, ids: Sequence[str]) -> bool:
        return self._told.is_revoked(ids) or self._mine(ids)

    async def add(self, token_id: str, *, by: str, note: str = "", shown: ShownToken | None = None) -> Revocation:
        there = self._told.revocation(token_id)
        return there or await self._mine.add(token_id, by=by, note=note, shown=shown)

    def list(self) -> Iterable[Revocation]:
        found: dict[str, Revocation] = {}
        for each in (*self._told.revocations(), *self._mine.list()):
            found.setdefault(each.token_id, each)
        return sorted(found.values(), key=lambda each: (each.at, each.token_id))


MAX_SENT = 10_000


class RemoteRevocations:
    """Keeps `Ended` for a broker that is a process of its own: its `node` writes them down. What this broker has sent
    there is known here beside the catalog, which may not have it yet: the last `MAX_SENT`."""

    def __init__(self, peers: Peers, node: NodeId) -> None:
        self._peers = peers
        self._node = node
        self._sent: OrderedDict[str, Revocation] = OrderedDict()

    def __call__(self, ids: Sequence[str]) -> bool:
        return any(token_id in self._sent for token_id in ids)

    async def add(self, token_id: str, *, by: str, note: str = "", shown: ShownToken | None = None) -> Revocation:
        """What was shown here is shown there: the node counts it."""
        body = RevokeTokenRequest(token_id=token_id, note=note)
        if shown is not None:
            body = RevokeTokenRequest(token=shown.text.reveal(), note=note)
        made = await self._peers.caller(self._node, behalf=by).call(REVOKE_TOKEN, body=body)
        sent = Revocation(token_id=token_id, at=made.revoked_at.timestamp(), by=made.revoked_by, note=made.note)
        self._sent[token_id] = sent
        if len(self._sent) > MAX_SENT:
            self._sent.popitem(last=False)
        return sent

    def list(self) -> Iterable[Revocation]:
        return tuple(self._sent.values())


_UNKNOWN_HERE = (
    "app_feature",
    "machine_feature",
    "org_feature",
    "mutation",
    "source_machine",
    "storage_object",
    "volume_id",
)


REVOCATIONS = Allowance(1.0, 10)
"""The revocations of tokens that were narrowed from one, and are shown: each is a write at every node."""


class TokenHandlers:
    """`has_app` says whether there is such an app."""

    def __init__(self, tokens: Tokens, revocations: Ended, clock: Clock, has_app: Callable[[str], bool]) -> None:
        self._tokens = tokens
        self._revocations = revocations
        self._clock = clock
        self._has_app = has_app
        self._shown = TokenBuckets(REVOCATIONS)

    def bind(self, handlers: Handlers) -> None:
        handlers.on(CURRENT_TOKENS, self.current)
        handlers.on(AUTHENTICATE_TOKEN, self.authenticate)
        handlers.on(AUTHORIZE_TOKEN, self.authorize)
        handlers.on(CREATE_DEPLOY_TOKEN, self.deploy_token)
        handlers.on(REVOKE_TOKEN, self.revoke)
        handlers.on(LIST_REVOKED, self.revoked)

    async def current(self, call: Call[NoParams, NoQuery, None]) -> CurrentTokens:
        held = _held(call)
        return CurrentTokens(tokens=tuple(map(_info, held)) if held else (_ROOT_INFO,))

    async def authenticate(self, call: Call[NoParams, NoQuery, AuthenticateRequest]) -> tuple[VerifiedToken, ...]:
        return _verified(self._tokens.read(call.body.header))

    async def authorize(self, call: Call[NoParams, NoQuery, AuthorizeRequest]) -> AuthorizeAnswer:
        """The first token that allows all of it."""
        wanted = _attempt(call.body.access)
        grant = await self._tokens(call.body.header, "")
        grant.check(wanted)
        found = _verified(self._tokens.read(call.body.header))
        index = grant.allowing(wanted) if isinstance(grant, Narrowed) else 0
        return AuthorizeAnswer(access=call.body.access, verified_token=found[index])

    async def deploy_token(self, call: Call[AppParams, NoQuery, DeployTokenRequest]) -> DeployToken:
        """Narrowed from the caller's own token, so that it never allows more; from a fresh one for the root token."""
        app = call.params.app_name
        if not self._has_app(app):
            raise NotFound("app not found")
        held, grant = self._tokens.mint(self._clock.token_bytes(NONCE_BYTES)), call.grant
        if isinstance(grant, Narrowed):
            held = grant.tokens[grant.allowing(Attempt(Action.CONTROL, app=app))]
        caveats: list[Caveat] = [Apps((app,)), Holder(f"deploy-{app}")]
        if call.body.expiry is not None:
            caveats.append(Expires(int(self._clock.now() + _seconds(call.body.expiry))))
        return DeployToken(token=to_text(narrow(held, *caveats)))

    async def revoke(self, call: Call[NoParams, NoQuery, RevokeTokenRequest]) -> RevokedToken:
        token_id, shown = self._revocable(call)
        if shown is not None:
            self._spend(shown)
        return _shown(await self._revocations.add(token_id, by=call.caller, note=call.body.note, shown=shown))

    def _spend(self, shown: ShownToken) -> None:
        """Counted for all who hold a part of the first token: its holder makes as many others of it as he likes."""
        key, now = shown.first.encode(), self._clock.monotonic()
        if not self._shown.take(key, now):
            raise RateLimited(TEXT, wait_s=self._shown.wait_s(key, now))

    async def revoked(self, call: Call[NoParams, NoQuery, None]) -> RevokedTokens:
        return RevokedTokens(tokens=tuple(map(_shown, self._revocations.list())))

    def _revocable(self, call: Call[NoParams, NoQuery, RevokeTokenRequest]) -> tuple[str, ShownToken | None]:
        body = call.body
        if (body.token is None) == (body.token_id is None):
            raise Unprocessable("name the token or its token_id")
        if body.token is not None:
            offered = self._offered(body.token)
            token = offered.macaroons[0]
            if _controls(call.grant):
                return token.id, None
            expires = expiry_of(token.caveats)
            return token.id, ShownToken(text=Secret(body.token), first=offered.first_id, expires=expires)
        assert body.token_id is not None
        call.grant.check(Attempt(Action.CONTROL))
        if not is_token_id(body.token_id):
            raise Unprocessable(f"token_id: {body.token_id!r} is no id of a token, see `hawker tokens inspect`")
        return body.token_id, None

    def _offered(self, text: str) -> Offered:
        """A token that is good here: whoever shows it, holds it."""
        offered = self._tokens.read(f"Bearer {text}")
        if offered.root:
            raise Unprocessable("the root token cannot be revoked: remove its file and restart the node for a new one")
        return offered


def _controls(grant: Grant) -> bool:
    """Whether the caller could revoke any token by its id. Not a node, which calls for others."""
    if isinstance(grant, Narrowed):
        return grant.permits(Attempt(Action.CONTROL))
    return grant.root and not grant.token_ids


def _held(call: Call[NoParams, NoQuery, None]) -> tuple[Macaroon, ...]:
    return call.grant.tokens if isinstance(call.grant, Narrowed) else ()


_ROOT_INFO = TokenInfo(token_id=ROOT, organization=DEFAULT_ORG, org_slug=DEFAULT_ORG, apps=(), user=ROOT)
_ROOT_VERIFIED = VerifiedToken(
    header=ROOT, nonce=TokenNonce(kid=b"", rnd=b"", proof=False), caveats=TokenCaveats(caveats=())
)


def _info(token: Macaroon) -> TokenInfo:
    orgs = [name for caveat in token.caveats if isinstance(caveat, Orgs) for name in caveat.names] or [DEFAULT_ORG]
    machines = [machine for caveat in token.caveats if isinstance(caveat, Machines) for machine in caveat.ids]
    return TokenInfo(
        token_id=token.id,
        organization=orgs[0],
        org_slug=orgs[0],
        apps=tuple(name for caveat in token.caveats if isinstance(caveat, Apps) for name in caveat.names),
        user=holder_of(token.caveats),
        restricted_to_machine=machines[0] if machines else "",
    )


def _verified(offered: Offered) -> tuple[VerifiedToken, ...]:
    return (_ROOT_VERIFIED,) if offered.root else tuple(map(_token, offered.macaroons))


def _token(token: Macaroon) -> VerifiedToken:
    """Its id stands for its text, which is a secret."""
    caveats = tuple(TokenCaveat(type=_kind(caveat), text=str(caveat)) for caveat in token.caveats)
    nonce = TokenNonce(kid=token.header.key, rnd=token.header.nonce, proof=False)
    return VerifiedToken(header=token.id, nonce=nonce, caveats=TokenCaveats(caveats=caveats))


def _kind(caveat: Caveat) -> str:
    return str(caveat.__struct_config__.tag)


def _attempt(access: TokenAccess) -> Attempt:
    for field in _UNKNOWN_HERE:
        if getattr(access, field) is not None:
            raise Unprocessable(f"access.{field}: tokens of this node say nothing about it")
    try:
        action = actions_of(access.action)
    except ValueError as error:
        raise Unprocessable(f"access.action: {error}") from error
    action |= Action.CONTROL if access.command else Action.NONE
    if not action:
        raise Unprocessable("access.action: name at least one action")
    return Attempt(action, org=access.org_slug, app=access.app_name, machine=access.machine_id)


def _seconds(expiry: str) -> float:
    try:
        seconds = parse_duration(expiry)
    except ValueError as error:
        raise BadRequest(f"expiry: {error}") from error
    if seconds <= 0:
        raise Unprocessable("expiry must be longer than nothing")
    return seconds


def _shown(revocation: Revocation) -> RevokedToken:
    return RevokedToken(
        token_id=revocation.token_id,
        revoked_at=instant(revocation.at),
        revoked_by=revocation.by,
        note=revocation.note,
    )
