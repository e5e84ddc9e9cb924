import io
import logging

import msgspec

from hawker.log import HumanFormatter, JsonFormatter, Secret, bind, configure


def _record(**fields: object) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": "machine started", "levelname": "INFO", "name": "hawker", **fields})


def test_json_line_has_the_phrase_and_its_fields() -> None:
    line = msgspec.json.decode(JsonFormatter().format(_record(machine="abc", ms=3)))
    assert line["message"] == "machine started"
    assert (line["machine"], line["ms"], line["level"]) == ("abc", 3, "info")


def test_human_line_has_the_phrase_and_its_fields() -> None:
    assert HumanFormatter().format(_record(machine="abc")).endswith("machine=abc")


def test_a_secret_prints_as_dots_everywhere() -> None:
    secret = Secret("hunter2")
    assert "hunter2" not in f"{secret!r} {secret} {JsonFormatter().format(_record(token=secret))}"
    assert secret.reveal() == "hunter2"


def test_bound_fields_go_with_every_line() -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    before = (root.handlers, root.level)
    try:
        configure(stream=stream)
        bind("hawker.test", machine="m1").info("exit seen", extra={"code": 3})
    finally:
        root.handlers = before[0]
        root.setLevel(before[1])
    line = msgspec.json.decode(stream.getvalue())
    assert (line["machine"], line["code"]) == ("m1", 3)
