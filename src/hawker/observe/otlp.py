"""Spans to a collector over OTLP/HTTP, by OpenTelemetry's own exporter: the one file that knows it, loaded only when an
endpoint is set, since it costs 200 ms and is an extra of the package.

Its environment variables for headers, certificates, compression and the time limit work as documented there. Spans are
made after the fact and with ids of ours, for which the SDK's tracer has no call, so they are handed to the exporter as
the read-only spans that a tracer would have made.
"""

import logging
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from hawker.observe.spans import Span, SpanOrigin

_TRACES = "/v1/traces"
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class OtlpExporter:
    """Keeps `spans.SpanExporter`."""

    def __init__(self, endpoint: str, origin: SpanOrigin) -> None:
        self._last_word = _LastWord()
        self._library = logging.getLogger(OTLPSpanExporter.__module__)
        self._library.addFilter(self._last_word)
        self._exporter = OTLPSpanExporter(traces_url(endpoint))
        self._resource = _resource(origin)
        self._scope = InstrumentationScope("hawker", origin.version)

    def export(self, spans: Sequence[Span]) -> str | None:
        self._last_word.text = ""
        result = self._exporter.export([self._readable(span) for span in spans])
        return None if result is SpanExportResult.SUCCESS else self._last_word.text or "refused"

    def close(self) -> None:
        """May be called once only."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]
        self._library.removeFilter(self._last_word)

    def _readable(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            context=_context(span.trace, span.id),
            parent=None if span.parent is None else _context(span.trace, span.parent),
            resource=self._resource,
            attributes=span.attributes,
            status=Status(StatusCode.OK) if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=_nanoseconds(span.started_at),
            end_time=_nanoseconds(span.ended_at),
            instrumentation_scope=self._scope,
        )


def traces_url(endpoint: str) -> str:
    """The URL of spans from the standard's OTEL_EXPORTER_OTLP_ENDPOINT: a base to which the signal's path is added."""
    bare = endpoint.rstrip("/")
    return bare if bare.endswith(_TRACES) else bare + _TRACES


def _nanoseconds(moment: float) -> int:
    """A double holds microseconds of today's Unix time and no more."""
    return round(moment * 1e6) * 1000


def _resource(origin: SpanOrigin) -> Resource:
    service = {"service.name": "hawker", "service.version": origin.version, "service.instance.id": origin.node}
    return Resource.create({**service, "hawker.region": origin.region})


def _context(trace: int, span: int) -> SpanContext:
    return SpanContext(trace, span, is_remote=False, trace_flags=_SAMPLED)


class _LastWord(logging.Filter):
    """Keeps what the library last said and lets none of it through: it says it for each batch, the queue once."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        self.text = record.getMessage()
        return False
