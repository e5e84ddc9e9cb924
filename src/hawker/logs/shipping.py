"""Lines of apps on their way to a collector elsewhere. The kept logs are the queue: they are bounded, and outlive a
daemon and a collector that is away. What was cut off before it could be sent, and what the collector refuses for good,
is counted as dropped: one app's line that it never takes must not hold up all that come after it.

How far each app was sent is written to a file after each batch that the collector took, so a line may come twice when
the daemon is killed in between, and never goes missing but for what is counted.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import anyio
import msgspec

from hawker.clock import Clock
from hawker.deferred import deferred
from hawker.fair.sessions import begin_of
from hawker.fair.threads import Pool, in_thread
from hawker.ids import AppName
from hawker.log import bind
from hawker.logs.app_log import PositionedLine
from hawker.logs.machine_logs import MachineLogs
from hawker.record.app import APPS
from hawker.record.node import NodeRecord
from hawker.store.contract import Reader
from hawker.value_object import ValueObject

if TYPE_CHECKING:
    import aiohttp
else:
    aiohttp = deferred("aiohttp")

BATCH_LINES, BATCH_BYTES = 1000, 512 * 1024
"""The most lines and bytes of one app at once: apps take turns."""

EVERY_S, AGAIN_LAST_S = 1.0, 60.0
_SEND_S = 10.0
_FOR_GOOD = frozenset({400, 413, 422})
"""Statuses that the same lines would be answered again. Others may be about the collector, or how it is asked."""

_TOO_LARGE = 413
_ANSWER_BYTES = 64 * 1024  # as much as an honest collector says
_SEVERITY = {"info": 9, "warning": 13, "error": 17}
_log = bind("hawker.logs")


class Batch(ValueObject, frozen=True, kw_only=True):
    """Lines of one app on one node."""

    app: str
    """The name of the app."""
    node: NodeRecord
    lines: Sequence[PositionedLine]


class Post(ValueObject, frozen=True):
    """The content of a post: the media type, and the body."""

    kind: str
    """The value of the header `content-type`."""
    body: bytes
    """The bytes of one batch of lines, in the form that the receiver takes."""


Notation = Callable[[Batch], Post]


class _Partial(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    rejected_log_records: int | str = 0


class _Taken(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an OTLP collector answers that took a part."""

    partial_success: _Partial = _Partial()


class _Answer(ValueObject, frozen=True):
    status: int
    rejected: int = 0


def lines_of_json(batch: Batch) -> Post:
    """The post of a batch with one object a line, as Vector's source `http_server` and others take it."""
    return Post("application/x-ndjson", b"".join(msgspec.json.encode(each) + b"\n" for each in _objects(batch)))


def loki(batch: Batch) -> Post:
    """Streams of Loki's push API: labels that have few values; the rest of a line is its metadata."""
    streams: dict[tuple[str, str, str], list[Any]] = {}
    for each in batch.lines:
        line = each.line
        values = streams.setdefault((line.provider, line.level, str(line.stream)), [])
        values.append([str(line.at), line.text, {"machine": line.machine, "container": line.container}])
    labels = {"app": batch.app, "region": batch.node.region, "node": batch.node.id}
    told = [
        {"stream": {**labels, "provider": provider, "level": level, "stream": stream}, "values": values}
        for (provider, level, stream), values in streams.items()
    ]
    return Post("application/json", msgspec.json.encode({"streams": told}))


def otlp(batch: Batch) -> Post:
    """Log records of OpenTelemetry's protocol, as JSON."""
    records = [
        {
            "timeUnixNano": str(each.line.at),
            "severityNumber": _SEVERITY.get(each.line.level, 9),
            "severityText": each.line.level,
            "body": {"stringValue": each.line.text},
            "attributes": _attributes(
                {
                    "hawker.machine": each.line.machine,
                    "hawker.container": each.line.container,
                    "hawker.provider": each.line.provider,
                    "log.iostream": {1: "stdout", 2: "stderr"}.get(each.line.stream, ""),
                }
            ),
        }
        for each in batch.lines
    ]
    resource = {"service.name": batch.app, "host.id": batch.node.id, "cloud.region": batch.node.region}
    told = {"resource": {"attributes": _attributes(resource)}, "scopeLogs": [{"logRecords": records}]}
    return Post("application/json", msgspec.json.encode({"resourceLogs": [told]}))


_NOTATIONS: Mapping[str, tuple[Notation, str]] = {
    "otlp": (otlp, "/v1/logs"),
    "loki": (loki, "/loki/api/v1/push"),
    "": (lines_of_json, ""),
}


def target_of(endpoint: str) -> tuple[Notation, str]:
    """The notation in which to write to a `log_endpoint`, and the URL; where it has no path, the notation's own."""
    parts = urlsplit(endpoint)
    name, _, scheme = parts.scheme.rpartition("+")
    notation, path = _NOTATIONS[name]
    return notation, urlunsplit(parts._replace(scheme=scheme, path=parts.path if parts.path.strip("/") else path))


class Shipping:
    """The shipping of one node's lines. What is counted as sent is not sent again by the next daemon."""

    def __init__(
        self,
        endpoint: str,
        state: Path,
        logs: MachineLogs,
        node: NodeRecord,
        store: Reader,
        clock: Clock,
        http: "Callable[[], aiohttp.ClientSession]",
    ) -> None:
        self._notation, self._url = target_of(endpoint)
        self._state = state
        self._logs = logs
        self._node = node
        self._store = store
        self._clock = clock
        self._http = http
        self._places: dict[str, int] = {}
        self._most_lines = BATCH_LINES
        self._refusing = False

    async def serve(self) -> None:
        """Sends lines to the collector, until cancelled. A collector that does not take it is asked again, ever less
        often."""
        self._places = await in_thread(Pool.LOGS, _read, self._state)
        pause_s, troubled = EVERY_S, False
        while True:
            try:
                more = await self._round()
                if troubled:
                    counts = self._logs.counts
                    _log.info("lines are sent again", extra={"sent": counts["sent"], "dropped": counts["dropped"]})
                pause_s, troubled = (0.0 if more else EVERY_S), False
            except (OSError, TimeoutError, aiohttp.ClientError, ValueError) as error:
                if not troubled:
                    extra = {"to": urlsplit(self._url).hostname, "error": str(error) or type(error).__name__}
                    _log.warning("lines cannot be sent", extra=extra)
                pause_s, troubled = min(max(2 * pause_s, EVERY_S), AGAIN_LAST_S), True
            await self._clock.sleep(pause_s)

    async def _round(self) -> bool:
        """A batch of each app; whether one has more."""
        more = False
        apps = {record.id: AppName(app) for app, record in self._store.scan(APPS)}
        for gone in self._places.keys() - apps.keys():
            del self._places[gone]
        for key, app in apps.items():
            more = await self._ship(key, app) or more
        return more

    async def _ship(self, key: str, app: AppName) -> bool:
        after, counts = self._places.get(key, -1), self._logs.counts
        part = await self._logs.read(app, after, most_lines=self._most_lines, most_bytes=BATCH_BYTES)
        if part.lines:
            answer = await self._post(self._notation(Batch(app=app, node=self._node, lines=part.lines)))
            if answer.status == _TOO_LARGE and len(part.lines) > 1:
                self._most_lines = len(part.lines) // 2
                return True
            self._most_lines = min(2 * self._most_lines, BATCH_LINES)
        if part.position > after:
            self._places[key] = part.position
            await in_thread(Pool.LOGS, _write, self._state, self._places)
        if part.lines:
            refused = len(part.lines) if answer.status in _FOR_GOOD else min(answer.rejected, len(part.lines))
            counts["sent"] += len(part.lines) - refused
            counts["dropped"] += refused + (part.lines[0].position - after - 1 if after >= 0 else 0)
            self._tell_refused(app, answer.status, refused)
        return part.more

    def _tell_refused(self, app: AppName, status: int, refused: int) -> None:
        """Once for as long as the collector refuses some of each batch."""
        if refused and not self._refusing:
            _log.warning("the collector refuses lines", extra={"app": app, "status": status, "lines": refused})
        self._refusing = bool(refused)

    async def _post(self, post: Post) -> _Answer:
        """Raises `ValueError` when the collector does not take it now."""
        with anyio.fail_after(_SEND_S):
            headers = {"Content-Type": post.kind}
            async with self._http().post(self._url, data=post.body, headers=headers, allow_redirects=False) as answer:
                if answer.status in _FOR_GOOD:
                    return _Answer(answer.status)
                if not 200 <= answer.status < 300:
                    raise ValueError(f"status {answer.status}")
                body = await begin_of(answer, _ANSWER_BYTES) if self._notation is otlp else b""
                return _Answer(answer.status, _rejected(body))


def _rejected(body: bytes) -> int:
    try:
        return max(0, int(msgspec.json.decode(body, type=_Taken).partial_success.rejected_log_records))
    except ValueError:
        return 0  # nothing, or no JSON: what OTLP asks for is the status


def _objects(batch: Batch) -> Sequence[dict[str, Any]]:
    return [
        {
            "at": each.line.at,
            "app": batch.app,
            "machine": each.line.machine,
            "region": batch.node.region,
            "node": batch.node.id,
            "stream": each.line.stream,
            "container": each.line.container,
            "level": each.line.level,
            "provider": each.line.provider,
            "text": each.line.text,
        }
        for each in batch.lines
    ]


def _attributes(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items() if value]


def _read(state: Path) -> dict[str, int]:
    """Nothing where there is no such file, or a damaged one: then what is kept is sent from its beginning."""
    try:
        return msgspec.json.decode(state.read_bytes(), type=dict[str, int])
    except (OSError, msgspec.DecodeError):
        return {}


def _write(state: Path, places: Mapping[str, int]) -> None:
    state.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = state.with_suffix(".new")
    draft.write_bytes(msgspec.json.encode(places))
    draft.replace(state)
