"""Where requests of a path went when a machine had them replayed, so that the next ones go there at once. Pure, with
`now` as an argument; one for each process, least recently used entries go.

An entry belongs to the app and host name that it was learned from: what one app says is used for no other's requests.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from hawker.config.machine import Port, ReplayCache
from hawker.edge.replay import LONGEST_CACHED_S, SHORTEST_CACHED_S, USUAL_CACHED_S, Replay
from hawker.edge.routes import ServiceTarget
from hawker.ids import AppName, MachineId
from hawker.value_object import ValueObject

MAX_ENTRIES = 10_000
MAX_PREFIXES = 256
"""The most prefixes of one app at one host name: each request looks for its own among them."""
MAX_SESSION_BYTES = 256


class ReplayQuestion(ValueObject, frozen=True):
    """A request, as the cache knows it. `session` is the value of the cookie or field that the app's config names for
    its path, None where it names none; `ruled` the rule of the config that it falls under."""

    app: AppName
    host: str
    """The host name in lower case, without a port."""
    path: str
    """The path without its query."""
    session: str | None = None
    rule: ReplayCache | None = None


class CachedReplay(ValueObject, frozen=True):
    """A replay that is kept for the next requests. `origin` is the machine that ordered it."""

    order: Replay
    origin: MachineId
    until: float
    """The time until which it counts, in seconds of the clock that `now` is of."""
    bypass: bool
    """Whether a client may ask for its request not to be answered from this."""


_Key = tuple[AppName, str, str, str | None]


class ReplayRoutes:
    """The replays that one process keeps."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, CachedReplay] = OrderedDict()
        self._prefixes: dict[tuple[AppName, str], dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, asked: ReplayQuestion, now: float) -> CachedReplay | None:
        """The replay that is kept for this request, by the longest prefix; None without one."""
        for key in self._keys(asked):
            found = self._kept.get(key)
            if found is None:
                continue
            if found.until > now:
                self._kept.move_to_end(key)
                return found
            self._drop(key)
        return None

    def keep(self, asked: ReplayQuestion, order: Replay, origin: MachineId, now: float) -> bool:
        """Keep the replay that a machine has ordered for this request, if it may be kept: by the machine's own word,
        else by the config's. Returns whether it is kept."""
        cache, rule = order.cache, asked.rule
        if not order.cacheable:
            return False
        if cache is not None and not cache.forget and cache.covers(asked.host, asked.path):
            key: _Key = (asked.app, asked.host, cache.prefix, None)
            return self._put(key, CachedReplay(order, origin, now + cache.ttl_s, cache.bypass))
        if cache is None and rule is not None and asked.session is not None:
            ttl_s = min(max(rule.ttl_seconds or USUAL_CACHED_S, SHORTEST_CACHED_S), LONGEST_CACHED_S)
            key = (asked.app, asked.host, prefix_of(rule), asked.session)
            return self._put(key, CachedReplay(order, origin, now + ttl_s, bool(rule.allow_bypass)))
        return False

    def forget(self, asked: ReplayQuestion) -> bool:
        """Forget all replays that are kept for this request. Returns whether there were any."""
        keys = [key for key in self._keys(asked) if key in self._kept]
        for key in keys:
            self._drop(key)
        return bool(keys)

    def _keys(self, asked: ReplayQuestion) -> Iterable[_Key]:
        """The longest prefix first; with the session before without."""
        prefixes = self._prefixes.get((asked.app, asked.host))
        if not prefixes:
            return
        for prefix in sorted(filter(asked.path.startswith, prefixes), key=len, reverse=True):
            if asked.session is not None:
                yield asked.app, asked.host, prefix, asked.session
            yield asked.app, asked.host, prefix, None

    def _put(self, key: _Key, entry: CachedReplay) -> bool:
        """Whether there is room for it."""
        self._drop(key)
        if len(self._prefixes.get(key[:2], ())) >= MAX_PREFIXES:
            return False
        self._kept[key] = entry
        prefixes = self._prefixes.setdefault(key[:2], {})
        prefixes[key[2]] = prefixes.get(key[2], 0) + 1
        if len(self._kept) > MAX_ENTRIES:
            self._drop(next(iter(self._kept)))
        return True

    def _drop(self, key: _Key) -> None:
        if self._kept.pop(key, None) is None:
            return
        prefixes = self._prefixes[key[:2]]
        prefixes[key[2]] -= 1
        if not prefixes[key[2]]:
            del prefixes[key[2]]
        if not prefixes:
            del self._prefixes[key[:2]]


def asked_for(
    app: AppName, host: str, target: bytes, fields: Iterable[tuple[bytes, bytes]], rules: Sequence[ReplayCache]
) -> ReplayQuestion:
    """The question for this request, with the rule of the longest prefix, and the cookie or field that the rule
    names."""
    path = target.decode("latin-1").partition("?")[0]
    ruled = [rule for rule in rules if path.startswith(prefix_of(rule)) and rule.type and rule.name]
    if not ruled:
        return ReplayQuestion(app, host, path)
    rule = max(ruled, key=lambda each: len(prefix_of(each)))
    name = (rule.name or "").lower().encode("latin-1", "replace")
    session = _cookie(rule.name or "", fields) if rule.type == "cookie" else _field(name, fields)
    return ReplayQuestion(app, host, path, session[:MAX_SESSION_BYTES] if session else None, rule)


def rules_of(target: ServiceTarget | None) -> tuple[ReplayCache, ...]:
    """The rules of the port's config for replays that may be kept."""
    port = Port() if target is None else target.port
    return (port.http_options.replay_cache if port.http_options else None) or ()


def skips_cache(fields: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the client asks for its request not to be answered from what is kept."""
    said = next((value for name, value in fields if name == b"fly-replay-cache-control"), b"")
    return said.strip().lower() == b"skip"


def cache_status(status: bytes) -> bytes:
    """The line that tells a machine what was known of its request; none where `status` is empty."""
    return b"fly-replay-cache-status: %b\r\n" % status if status else b""


def prefix_of(rule: ReplayCache) -> str:
    """The prefix of a rule, without a star at its end or its beginning."""
    return (rule.path_prefix or "").strip("*")


def _field(wanted: bytes, fields: Iterable[tuple[bytes, bytes]]) -> str | None:
    return next((value.decode("latin-1") for name, value in fields if name == wanted), None)


def _cookie(wanted: str, fields: Iterable[tuple[bytes, bytes]]) -> str | None:
    for name, value in fields:
        if name == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                key, _, said = pair.strip().partition("=")
                if key == wanted:
                    return said
    return None
