"""Bodies about tokens. Bytes are base64, as clients send and read them, though the official document says numbers."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from hawker.api.bounds import GoDuration
from hawker.api.contract.app import AppParams
from hawker.api.contract.body import Answer, Request
from hawker.api.route import NoParams, Tag, Unary
from hawker.errors import Forbidden, NotFound, QuotaExceeded, RateLimited, Unauthorized
from hawker.permission import Action


class TokenInfo(Answer, frozen=True, kw_only=True):
    """What the caller's token is good for. `apps` is empty when it is not limited to some."""

    token_id: str
    """The id of the token, which revokes it; `root` for the root token."""
    organization: str
    """The slug of the first organization that the token is limited to, else of the default one."""
    org_slug: str
    """The value of `organization` once more."""
    apps: tuple[str, ...]
    user: str
    """The name of the person or program that the token was made for."""
    restricted_to_machine: str = ""
    """The id of the first machine that the token is limited to; empty for none."""


class CurrentTokens(Answer, frozen=True, kw_only=True):
    tokens: tuple[TokenInfo, ...]


class AuthenticateRequest(Request, frozen=True, kw_only=True):
    """`header` is what a caller would send as Authorization."""

    header: str


class TokenNonce(Answer, frozen=True, kw_only=True):
    kid: bytes
    """The id of the issuer's key that signed the token, as base64."""
    rnd: bytes
    """Random bytes that make the token unlike any other, as base64."""
    proof: bool
    """Always false: clients read it."""


class TokenCaveat(Answer, frozen=True, kw_only=True):
    """`type` names the kind of caveat, `text` says it for a person."""

    type: str
    text: str


class TokenCaveats(Answer, frozen=True, kw_only=True):
    caveats: tuple[TokenCaveat, ...]


class VerifiedToken(Answer, frozen=True, kw_only=True):
    header: str
    """The id of the token, in place of the token, which is secret."""
    nonce: TokenNonce
    caveats: TokenCaveats
    permission_token: bytes = b""
    """Always empty: clients read it."""


class TokenAccess(Request, frozen=True, kw_only=True):
    """`action` is letters: r read, w write, c create, d delete, C control. What this node has no notion of (`mutation`,
    the features, `source_machine`, `storage_object`, `volume_id`) is refused rather than passed over."""

    action: str = ""
    org_slug: str | None = None
    """The slug of the organization that has the thing; absent: the app's organization."""
    app_name: str | None = None
    """The name of the app that is meant; absent: none."""
    machine_id: str | None = None
    """The id of the machine that is meant; absent: none."""
    command: tuple[str, ...] = ()
    """The command that is to be run: with one, control is asked for beside `action`."""
    source_machine: str | None = None
    """Always refused: no token of this node is bound to the machine that shows it."""
    app_feature: str | None = None
    """Always refused: tokens of this node say nothing about features."""
    machine_feature: str | None = None
    """Always refused: tokens of this node say nothing about features."""
    org_feature: str | None = None
    """Always refused: tokens of this node say nothing about features."""
    mutation: str | None = None
    storage_object: str | None = None
    volume_id: str | None = None


class AuthorizeRequest(Request, frozen=True, kw_only=True):
    header: str
    """The text that a caller would send as `Authorization`."""
    access: TokenAccess


class AuthorizeAnswer(Answer, frozen=True, kw_only=True):
    access: TokenAccess
    verified_token: VerifiedToken


class DeployTokenRequest(Request, frozen=True, kw_only=True):
    """`expiry` is a Go duration; without it the token does not expire."""

    expiry: GoDuration | None = None


class DeployToken(Answer, frozen=True, kw_only=True):
    token: str
    """The new token, which is secret; only this answer shows it."""


MAX_NOTE = 200
"""The most characters of a note, and of the name of who revoked a token: both are at every node for ever."""


class RevokeTokenRequest(Request, frozen=True, kw_only=True):
    """`token` itself or its `token_id`."""

    token: str | None = None
    token_id: str | None = None
    note: Annotated[str, Meta(max_length=MAX_NOTE)] = ""
    """The reason of the revocation, for people; may be empty."""


class RevokedToken(Answer, frozen=True, kw_only=True):
    token_id: str
    """The id of the token: it is refused from now on, and so is each token that was made from it."""
    revoked_at: datetime
    revoked_by: str
    """The name of the token that made the call, at most 200 characters of it."""
    note: str = ""
    """The reason of the revocation, for people; may be empty."""


class RevokedTokens(Answer, frozen=True, kw_only=True):
    tokens: tuple[RevokedToken, ...]


# Calls about tokens: what a token is good for, making one for an app, and ending one.

OFFERED_BYTES = 64 * 1024  # as much as a head may have, where such a header would be

CURRENT_TOKENS = Unary(
    name="current_tokens",
    method="GET",
    path="/v1/tokens/current",
    params=NoParams,
    response=CurrentTokens,
    tag=Tag.TOKENS,
    summary="Show what the caller's token allows",
    guarded=False,  # every token may ask about itself
)

AUTHENTICATE_TOKEN = Unary(
    name="authenticate_token",
    method="POST",
    path="/v1/tokens/authenticate",
    params=NoParams,
    body=AuthenticateRequest,
    response=tuple[VerifiedToken, ...],
    tag=Tag.TOKENS,
    summary="Check the tokens of an Authorization header",
    errors=(Unauthorized,),
    auth=False,
    body_bytes=OFFERED_BYTES,
)

AUTHORIZE_TOKEN = Unary(
    name="authorize_token",
    method="POST",
    path="/v1/tokens/authorize",
    params=NoParams,
    body=AuthorizeRequest,
    response=AuthorizeAnswer,
    tag=Tag.TOKENS,
    summary="Check whether the tokens of an Authorization header allow something",
    errors=(Unauthorized, Forbidden),
    auth=False,
    body_bytes=OFFERED_BYTES,
)

CREATE_DEPLOY_TOKEN = Unary(
    name="create_deploy_token",
    method="POST",
    path="/v1/apps/{app_name}/deploy_token",
    params=AppParams,
    body=DeployTokenRequest,
    response=DeployToken,
    tag=Tag.TOKENS,
    summary="Make a token for this app only",
    errors=(NotFound,),
    action=Action.CONTROL,
    body_optional=True,
)

REVOKE_TOKEN = Unary(
    name="revoke_token",
    method="POST",
    path="/hawker/v1/tokens/revoked",
    params=NoParams,
    body=RevokeTokenRequest,
    response=RevokedToken,
    tag=Tag.TOKENS,
    summary="Revoke a token and all tokens narrowed from it",
    errors=(QuotaExceeded, RateLimited),
    guarded=False,  # whoever holds a token may end it; by its id alone, only who controls the node
)

LIST_REVOKED = Unary(
    name="list_revoked",
    method="GET",
    path="/hawker/v1/tokens/revoked",
    params=NoParams,
    response=RevokedTokens,
    tag=Tag.TOKENS,
    summary="List the revoked tokens",
)

TOKEN_ROUTES = (
    CURRENT_TOKENS,
    AUTHENTICATE_TOKEN,
    AUTHORIZE_TOKEN,
    CREATE_DEPLOY_TOKEN,
    REVOKE_TOKEN,
    LIST_REVOKED,
)
