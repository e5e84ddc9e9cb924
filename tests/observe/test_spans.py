"""How OpenTelemetry is loaded, and what is said when it is not there."""

import subprocess
import sys

import pytest

from hawker.errors import CannotStart
from hawker.observe.otlp import OtlpExporter
from hawker.observe.spans import load_exporter


def test_the_exporter_is_opentelemetrys() -> None:
    assert load_exporter() is OtlpExporter


def test_without_the_extra_the_daemon_says_what_to_install() -> None:
    with pytest.raises(CannotStart, match=r"hawker\.observe\.absent is not installed: install hawker\[otel\]"):
        load_exporter("hawker.observe.absent")


def test_a_node_without_an_endpoint_does_not_pay_for_it() -> None:
    code = "import sys, hawker.up; print(sorted(name for name in sys.modules if name.startswith('opentelemetry')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.strip() == "[]"
