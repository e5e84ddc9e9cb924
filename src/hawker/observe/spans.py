"""Where spans go: to a collector when an endpoint is set. OpenTelemetry is loaded then, by name, and not otherwise."""

from collections.abc import Callable
from importlib import import_module

from hawker.errors import CannotStart
from hawker.observe.span import SpanOrigin
from hawker.observe.span_queue import SpanExporter

MakeExporter = Callable[[str, SpanOrigin], SpanExporter]

_MODULE = "hawker.observe.otlp"


def load_exporter(module: str = _MODULE) -> MakeExporter:
    """What makes an exporter to an OTLP endpoint. Raises `CannotStart` when the extra is not installed."""
    try:
        made: MakeExporter = import_module(module).OtlpExporter
    except ModuleNotFoundError as error:
        text = f"otel_endpoint is set and {error.name} is not installed: install hawker[otel], or unset it"
        raise CannotStart(text) from error
    return made
