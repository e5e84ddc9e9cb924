"""What a row of the route table is. One table drives the server, the client, the OpenAPI document and the tests.

Four kinds of row: `Unary` (a body in, a body out), `Stream` (a body in, lines of JSON out), `Upload` (raw bytes in, a
body out) and `Socket` (a conversation over a WebSocket). No I/O here.
"""

from collections.abc import Mapping
from enum import Enum
from types import NoneType
from typing import Any, Generic, TypeAlias

import msgspec
from typing_extensions import TypeVar

from hawker.api.call_metadata import CallMetadata, written_behalf
from hawker.api.grant import Grant, share_key
from hawker.errors import BadRequest, Forbidden, HawkerError, RateLimited, TooLarge, Unauthorized, Unprocessable
from hawker.http.message import MAX_ANSWER_BYTES
from hawker.permission import Action, Attempt
from hawker.token_bucket import Allowance
from hawker.value_object import ValueObject

# How often a call may be made. The numbers are the contract's; a row of the route table names its class.


class Rate(Enum):
    """The classes. `NONE` is for calls of our own, which no client of the Machines API makes."""

    USUAL = Allowance(1.0, 3)
    LOOK = Allowance(5.0, 10)  # at one machine
    APP_DELETION = Allowance(100 / 60, 100)  # of all apps together
    NONE = Allowance(0.0, 0)


USUAL_TIMEOUT_S = 30.0
MAX_REMARK_BYTES = 1024 * 1024  # of an error in place of a stream, and of what an upload is answered
JSON = "application/json"


class NoParams(msgspec.Struct, frozen=True, kw_only=True):
    """A path without parameters."""


class NoQuery(msgspec.Struct, frozen=True, kw_only=True):
    """No query parameters. Those that come are ignored, but for a list's, see `is_list`."""


P = TypeVar("P", bound=msgspec.Struct)  # path parameters
Q = TypeVar("Q", bound=msgspec.Struct, default=NoQuery)  # query parameters
B = TypeVar("B", default=None)  # request body
R = TypeVar("R", default=None)  # answer, or one item of a stream
U = TypeVar("U", default=None)  # a message from the client of a socket
T = TypeVar("T")


class Tag(Enum):
    """Chapters of the API's document, in its order."""

    APPS = "Apps"
    MACHINES = "Machines"
    LEASES = "Leases"
    METADATA = "Metadata"
    VOLUMES = "Volumes"
    SECRETS = "Secrets"
    TOKENS = "Tokens"
    PLATFORM = "Platform"
    NODE = "Node"
    RUNS = "Runs"
    IMAGES = "Images"
    FLYCTL = "flyctl"


class Page(ValueObject, Generic[T], frozen=True):
    """A list that is sent as a bare array; the cursor of the next page goes into the header `fly-next-cursor`."""

    items: tuple[T, ...]
    next_cursor: str | None = None
    """Opaque; None on the last page."""


class Alias(ValueObject, frozen=True):
    """Another method and path that clients use for the same call."""

    method: str
    """In capitals, as HTTP writes it."""
    path: str
    """With the parameters of the call's own path, in braces."""


class Route(ValueObject, Generic[P, Q, B, R], frozen=True, kw_only=True):
    """One call. `errors` are those beyond what `declared_errors` adds. With `body_optional` an absent body is the
    request's defaults; with `strict` unknown fields of the body are refused; `keyed` calls take an
    Idempotency-Key. `timeout_s` is how long a client waits. `action` is what a token must allow, by the method unless
    told; unless `guarded`, the handler asks the caller's grant itself. `rate` is how often the call may be made, the
    usual unless told for calls of the Machines API. A body of more than `body_bytes` is
    refused, the server's own bound unless told. With another `media` than JSON, `R` is `str` or `bytes`, and that is
    the answer as it stands. A client takes at most `answer_bytes` of
    an answer. With `listed_errors` an error's body also has its text in a list `errors`, as
    clients of GraphQL read it."""

    name: str
    """The operation's id in the OpenAPI document and in metrics: it never changes."""
    method: str
    """In capitals, as HTTP writes it."""
    path: str
    """Begins with `/`; a part in braces is a field of `params`."""
    params: type[P]
    query: type[Q] = NoQuery  # type: ignore[assignment]  # the type variable's default is the same
    body: type[B] = NoneType  # type: ignore[assignment]
    response: type[R]
    tag: Tag
    summary: str
    """What the call does, in one sentence of the OpenAPI document."""
    status: int = 200
    """Of an answer that is no error: 200 to 204."""
    errors: tuple[type[HawkerError], ...] = ()
    auth: bool = True
    """False: everybody may call, without a token."""
    action: Action | None = None
    guarded: bool = True
    rate: Rate | None = None
    body_optional: bool = False
    body_bytes: int | None = None
    strict: bool = False
    keyed: bool = False
    aliases: tuple[Alias, ...] = ()
    timeout_s: float = USUAL_TIMEOUT_S
    media: str = JSON
    answer_bytes: int = MAX_ANSWER_BYTES
    listed_errors: bool = False


class Unary(Route[P, Q, B, R], frozen=True, kw_only=True):
    """A body in (or none), a body out (or none)."""


class Stream(Route[P, Q, B, R], frozen=True, kw_only=True):
    """A body in (or none); `R` items out, each a line of JSON, until the call ends or the client goes away."""


class Upload(Route[P, Q, B, R], frozen=True, kw_only=True):
    """Raw bytes of any length in, a body out. `B` is None."""

    answer_bytes: int = MAX_REMARK_BYTES


class Socket(Route[P, Q, B, R], Generic[P, Q, B, R, U], frozen=True, kw_only=True):
    """A conversation: `B` is the client's first message, `up` the type of its later ones, `R` of the node's."""

    up: type[U]


AnyRoute: TypeAlias = Route[Any, Any, Any, Any]

_SUBJECTS = ("org_slug", "app_name", "machine_id", "volume_id")
_BY_METHOD = {"GET": Action.READ, "DELETE": Action.DELETE}


def attempt_of(route: AnyRoute, params: Mapping[str, str]) -> Attempt:
    """What a call of this route does, and to what: the path names it."""
    action = route.action or _BY_METHOD.get(route.method, Action.WRITE)
    return Attempt(action, app=params.get("app_name"), machine=params.get("machine_id"))


def is_list(route: AnyRoute) -> bool:
    """Whether it answers several things, which its query parameters narrow."""
    return route.method == "GET" and route.name.startswith("list_")


def writes(route: AnyRoute) -> bool:
    """Whether a call of it may change something."""
    return attempt_of(route, {}).action is not Action.READ


def rate_of(route: AnyRoute) -> Rate:
    """Calls of our own, which are not below /v1, are not counted unless their row says so."""
    if route.rate is not None:
        return route.rate
    return Rate.USUAL if route.path.startswith("/v1/") else Rate.NONE


def subject_of(route: AnyRoute, params: Mapping[str, str]) -> tuple[str, ...] | None:
    """What the calls of this route are counted for: the machine or volume that the path names, with its app, else the
    app or the org. None for a call that names none of them: there is nothing to count it for."""
    if rate_of(route) is Rate.APP_DELETION:
        return ()
    return tuple(params[name] for name in _SUBJECTS if name in params) or None


def declared_errors(route: AnyRoute) -> tuple[type[HawkerError], ...]:
    """Every error that a client of this call should expect: the row's own, and those of what the row takes."""
    found: list[type[HawkerError]] = [BadRequest]
    if route.auth:
        found += [Unauthorized, Forbidden]
    if route.body is not NoneType:
        found += [TooLarge, Unprocessable]
    if rate_of(route) is not Rate.NONE and set(route.params.__struct_fields__) & set(_SUBJECTS):
        found.append(RateLimited)
    return tuple(dict.fromkeys([*found, *route.errors]))


class Call(ValueObject, Generic[P, Q, B], frozen=True, kw_only=True):
    """What a handler is given. `request_id` is a ULID that the answer carries. `nonce` is the caller's lease,
    `idempotency_key` what makes a repeated call the same one, `grant` what its token allows. `version` is what the
    caller wants to be able to read: `origin:epoch:version`, not looked at yet. `deploy_term` is that of the deploy
    which makes the call, not looked at either. `deadline_s` is how many seconds it still waits, 0 or more, None when it
    does not say. `metadata` goes with the answer; the handler fills it in."""

    params: P
    query: Q
    body: B
    grant: Grant
    request_id: str
    nonce: str | None = None
    idempotency_key: str | None = None
    version: str | None = None
    deploy_term: str | None = None
    deadline_s: float | None = None
    source: str = ""
    """The address that the call came from; empty where there is none."""
    certified: str = ""
    """The node whose certificate the caller showed; empty where none was asked for."""
    metadata: CallMetadata = msgspec.field(default_factory=CallMetadata)

    @property
    def caller(self) -> str:
        """The name that the caller's token stands for: for people, since its holder may choose it."""
        return self.grant.name

    @property
    def behalf(self) -> str:
        """The caller as one node names it to another, with its tokens."""
        return written_behalf(self.grant.name, self.grant.token_ids)

    @property
    def share(self) -> str:
        """The key of the caller's shares and limits."""
        return share_key(self.grant)
