"""`fly-replay`: what a machine says instead of an answer, so that its request is sent elsewhere. Pure: the grammar, its
bounds, and the fields that a replayed request gets. Source: superfly/docs, networking/dynamic-request-routing.

A machine is trusted as little as a client: what is not understood whole is refused, and no replay can set a field that
frames a message or that the edge vouches for.
"""

import re
from collections.abc import Set
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from hawker.edge.head import Field, RequestHead, ResponseHead
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.steering import Steering
from hawker.edge.writing import OURS, REPLACED
from hawker.ids import AppName, MachineId
from hawker.value_object import ValueObject

REPLAY, REPLAY_CACHE = b"fly-replay", b"fly-replay-cache"
REPLAY_TTL, REPLAY_BYPASS = b"fly-replay-cache-ttl-secs", b"fly-replay-cache-allow-bypass"
REPLAY_JSON = b"application/vnd.fly.replay+json"
MAX_REPLAYS = 10
"""The most replays of one request."""
MAX_JSON_BYTES = 64 << 10
MAX_HEADER_BYTES, MAX_STATE_BYTES, MAX_REGIONS = 4096, 1024, 32
MAX_TRANSFORMED = 64
"""The most fields that one transform may set and take out, together."""
SHORTEST_CACHED_S, LONGEST_CACHED_S, USUAL_CACHED_S = 10, 86_400, 300
"""Seconds that a replay may be kept for the next requests, at least and at most, and the seconds if the machine says
none."""
_LONGEST_S = 3600.0
_TTL_DIGITS = 9  # Python itself refuses to read a number of thousands
_INVALIDATE, _MAX_PATTERN_BYTES = "invalidate", 1024
_PATTERN = re.compile(r"([A-Za-z0-9._-]{0,253})(/[\x21-\x29\x2b-\x7e]*)\*")
_PAIR = re.compile(r'[ \t]*([a-z_]+)[ \t]*=(?:[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*|([^;"]*))(?:;|$)')
"""A key and its value. No two parts that stand beside each other take the same character: else 4 KB of blanks are tried
in 10^10 ways."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}")
_DURATION = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)(ms|s|m)")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0}
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_PATH = re.compile(r"/[\x21\x22\x24-\x7e]{0,16383}")
_FIELD_NAME = re.compile(r"[!#$%&'*+\-.^`|~0-9A-Za-z]{1,256}")
_FIXED = (
    frozenset(
        b"""host connection content-length transfer-encoding te trailer upgrade keep-alive expect proxy-connection
        proxy-authorization proxy-authenticate http2-settings""".split()
    )
    | OURS
    | REPLACED
)
"""Fields that no transform touches."""


class Fallback(StrEnum):
    """The machine that gets a request whose replay found no machine: the one that ordered it, or that one before others
    of its app."""

    FORCE_SELF = "force_self"
    PREFER_SELF = "prefer_self"


class Transform(ValueObject, frozen=True, kw_only=True):
    """The changes that a replay makes to its request. `path` is a target in origin form, empty to keep it. Names are in
    lower case."""

    path: str = ""
    delete: frozenset[bytes] = frozenset()
    """The names of fields that are taken out, wherever they are."""
    put: tuple[Field, ...] = ()

    def apply(self, head: RequestHead) -> RequestHead:
        gone = self.delete | {name for name, _ in self.put}
        fields = (*(field for field in head.fields if field[0] not in gone), *self.put)
        return replace(head, target=self.path.encode() or head.target, fields=fields)


class CacheOrder(ValueObject, frozen=True, kw_only=True):
    """The order of a machine to keep its replay for the next requests. `host` is empty for the request's own; `forget`:
    nothing is to be kept, and what is kept for the request is to go."""

    host: str = ""
    prefix: str = ""
    """The first characters of the paths that are meant; `/` for all."""
    ttl_s: int = USUAL_CACHED_S
    """Whole seconds that the replay is kept, 10 to 86400."""
    bypass: bool = False
    """Whether a client may ask for its request not to be answered from what is kept."""
    forget: bool = False

    def covers(self, host: str, path: str) -> bool:
        return self.host in ("", host) and path.startswith(self.prefix)


class Replay(ValueObject, frozen=True, kw_only=True):
    """The next target of a request. `elsewhere`: no machine that has had it. `timeout_s` counts until a machine has
    taken the connection."""

    regions: tuple[str, ...] = ()
    """The codes of regions in lower case, the first one preferred; empty for any."""
    instance: MachineId | None = None
    prefer: MachineId | None = None
    app: AppName | None = None
    state: str = ""
    """The text for the machine that gets the request, as the machine that sends it said: printable, without `;`. Empty
    for none."""
    elsewhere: bool = False
    timeout_s: float | None = None
    fallback: Fallback | None = None
    transform: Transform | None = None
    cache: CacheOrder | None = None

    @property
    def cacheable(self) -> bool:
        """Whether the next requests may go there without asking the machine: nothing in the replay is for this request
        alone."""
        return not self.state and not self.transform and self.timeout_s is None and self.fallback is None


def is_replay(answer: ResponseHead) -> bool:
    return any(name == REPLAY or (name == b"content-type" and _is_json(value)) for name, value in answer.fields)


def wants_body(answer: ResponseHead) -> bool:
    """Whether the order is in the answer's body, and in no field."""
    return not any(name == REPLAY for name, _ in answer.fields)


def read_replay(answer: ResponseHead, body: bytes) -> Replay:
    """The replay that an answer orders. `body` counts if `wants_body`. Raises `ProxyError`."""
    said = [value for name, value in answer.fields if name == REPLAY]
    if not said:
        return _from_json(body)
    if len(said) > 1 or len(said[0]) > MAX_HEADER_BYTES:
        raise _malformed("it is said more than once, or is too long")
    given = dict(answer.fields)
    order = _from_header(said[0].decode("latin-1"))
    pattern, ttl = given.get(REPLAY_CACHE), given.get(REPLAY_TTL, b"")
    if pattern is None:
        return order
    if ttl and not (ttl.isdigit() and len(ttl) <= _TTL_DIGITS):
        raise _malformed("its cache has a lifetime that is none")
    bypass = given.get(REPLAY_BYPASS, b"").lower() == b"yes"
    return replace(order, cache=_cache(pattern.decode("latin-1"), int(ttl) if ttl else None, bypass=bypass))


def replayed_to(order: Replay, had: Set[MachineId]) -> Steering:
    """The steering by which the request is sent on. `had` are the machines that have had the request."""
    apart = frozenset(had) if order.elsewhere else frozenset[MachineId]()
    return Steering(force=order.instance, prefer=order.prefer, regions=order.regions, apart=apart)


def replay_source(origin: MachineId, region: str, now: float, state: str) -> bytes:
    """The field that tells a machine which machine had the request before."""
    said = f"instance={origin};region={region};t={round(now * 1_000_000)};state={state}"
    return b"fly-replay-src: %b\r\n" % said.encode("latin-1")


def replay_failed(order: Replay, app: AppName, origin: MachineId, reason: str, elapsed_s: float) -> bytes:
    """The field that tells the machine that ordered a replay what became of it. `app` is the app that was meant."""
    said = (
        f"instance={order.instance or ''};app={app};region={','.join(order.regions)};replay_source={origin};"
        f"reason={reason};elapsed_ms={round(elapsed_s * 1000)}"
    )
    return b"fly-replay-failed: %b\r\n" % said.encode("latin-1")


def _from_header(text: str) -> Replay:
    given: dict[str, str] = {}
    at = 0
    while at < len(text):
        if not text[at:].strip(" \t;"):
            break
        match = _PAIR.match(text, at)
        if match is None or match[1] in given:
            raise _malformed("it is no list of keys with values, each once")
        quoted, plain = match[2], match[3]
        given[match[1]] = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain.strip(" \t")
        at = match.end()
    elsewhere = given.pop("elsewhere", "false")
    if elsewhere not in ("true", "false"):
        raise _malformed("elsewhere is true or false")
    return _checked(given, elsewhere=elsewhere == "true")


class _FieldToSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    value: str


class _TransformSaid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str = ""
    delete_headers: tuple[str, ...] = ()
    set_headers: tuple[_FieldToSet, ...] = ()


class _CacheSaid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    prefix: str = ""
    ttl: int | None = None
    invalidate: bool = False
    allow_bypass: bool = False


class _ReplaySaid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    region: str | None = None
    instance: str | None = None
    prefer_instance: str | None = None
    app: str | None = None
    state: str | None = None
    elsewhere: bool = False
    timeout: str | None = None
    fallback: str | None = None
    transform: _TransformSaid | None = None
    cache: _CacheSaid | None = None


def _from_json(body: bytes) -> Replay:
    try:
        said = msgspec.json.decode(body, type=_ReplaySaid)
    except ValueError as error:  # of UTF-8, too
        raise _malformed(str(error)) from error
    keys = ("region", "instance", "prefer_instance", "app", "state", "timeout", "fallback")
    found = {key: value for key in keys if (value := getattr(said, key)) is not None}
    order = _checked(found, elsewhere=said.elsewhere)
    if said.transform is not None:
        order = replace(order, transform=_transform(said.transform))
    if said.cache is not None:
        pattern = _INVALIDATE if said.cache.invalidate else said.cache.prefix.removesuffix("*") + "*"
        order = replace(order, cache=_cache(pattern, said.cache.ttl, bypass=said.cache.allow_bypass))
    return order


def _checked(given: dict[str, str], *, elsewhere: bool) -> Replay:
    unknown = given.keys() - {"region", "instance", "prefer_instance", "app", "state", "timeout", "fallback"}
    if unknown:
        raise _malformed(f"it has a key that is none: {min(unknown)[:40]}")
    regions = tuple(filter(None, (each.strip().lower() for each in given.get("region", "").split(","))))
    names = [*regions, *(given[key] for key in ("instance", "prefer_instance", "app") if key in given)]
    state = given.get("state", "")
    if not names and not elsewhere:
        raise _malformed("it names no target")
    if len(regions) > MAX_REGIONS or not all(_NAME.fullmatch(each) for each in names):
        raise _malformed("a name in it is none")
    if len(state) > MAX_STATE_BYTES or not _PRINTABLE.fullmatch(state) or ";" in state:
        raise _malformed(f"its state has more than {MAX_STATE_BYTES} bytes, or bytes that no field may have")
    fallback = given.get("fallback")
    if fallback is not None and fallback not in set(Fallback):
        raise _malformed("fallback is force_self or prefer_self")
    return Replay(
        regions=regions,
        instance=MachineId(given["instance"]) if "instance" in given else None,
        prefer=MachineId(given["prefer_instance"]) if "prefer_instance" in given else None,
        app=AppName(given["app"]) if "app" in given else None,
        state=state,
        elsewhere=elsewhere,
        timeout_s=_seconds(given["timeout"]) if "timeout" in given else None,
        fallback=Fallback(fallback) if fallback is not None else None,
    )


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    seconds = float(match[1]) * _UNITS_S[match[2]] if match else 0.0
    if not 0 < seconds <= _LONGEST_S:
        raise _malformed("its timeout is none, such as 800ms or 10s")
    return seconds


def _transform(said: _TransformSaid) -> Transform:
    names = [*said.delete_headers, *(each.name for each in said.set_headers)]
    values = [each.value for each in said.set_headers]
    if len(names) > MAX_TRANSFORMED or (said.path and not _PATH.fullmatch(said.path)):
        raise _malformed("its transform has a path that is none, or too many fields")
    for name in names:
        if not _FIELD_NAME.fullmatch(name) or name.lower().encode() in _FIXED:
            raise _malformed(f"its transform may not touch the field {name[:40]!r}")
    if not all(_PRINTABLE.fullmatch(value) for value in values):
        raise _malformed("its transform sets a field to bytes that no field may have")
    return Transform(
        path=said.path,
        delete=frozenset(name.lower().encode() for name in said.delete_headers),
        put=tuple((each.name.lower().encode(), each.value.strip().encode()) for each in said.set_headers),
    )


def _cache(pattern: str, ttl_s: int | None, *, bypass: bool) -> CacheOrder:
    """The pattern ends with a star: `example.com/docs/*`, `/docs/*`."""
    if pattern == _INVALIDATE:
        return CacheOrder(forget=True)
    match = _PATTERN.fullmatch(pattern) if len(pattern) <= _MAX_PATTERN_BYTES else None
    if match is None or (ttl_s is not None and not SHORTEST_CACHED_S <= ttl_s <= LONGEST_CACHED_S):
        raise _malformed("its cache has a pattern or a lifetime that is none")
    return CacheOrder(host=match[1].lower(), prefix=match[2], ttl_s=ttl_s or USUAL_CACHED_S, bypass=bypass)


def _is_json(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() == REPLAY_JSON


def _malformed(why: str) -> ProxyError:
    return ProxyError(Code.PA03, known=f"fly-replay: {why}")
