from datetime import UTC, datetime, timedelta

import click
import msgspec
import pytest

from hawker.cli import output
from hawker.cli.output import Form, as_json, line_of_json, note, show
from hawker.machine import State


def test_a_value_is_shown_as_text_or_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    show({"a": 1}, Form.TABLE, lambda value: f"a is {value['a']}")
    show({"a": 1}, Form.JSON, lambda value: "no")
    assert capsys.readouterr().out == 'a is 1\n{\n  "a": 1\n}\n'


def test_json_can_be_read_back() -> None:
    value = {"a": [1, None, "ü"]}
    assert msgspec.json.decode(as_json(value)) == msgspec.json.decode(line_of_json(value)) == value
    assert "\n" not in line_of_json(value)


def test_a_note_keeps_out_of_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    note("pulling")
    assert capsys.readouterr() == ("", "pulling\n")


NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def plain(text: str) -> str:
    return click.unstyle(text)


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    text = plain(output.table(("ID", "STATE"), [("a", State.STARTED), ("bcde", None)]))
    assert text.splitlines() == ["ID    STATE", "a     started", "bcde  -"]


def test_a_narrow_terminal_cuts_the_widest_columns_but_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("0123456789abcdef", "started", "a very long text of somebody's")]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    lines = plain(output.table(("ID", "STATE", "ERROR"), rows)).splitlines()
    assert lines == ["ID                STATE    ERROR", "0123456789abcdef  started  a very long …"]
    monkeypatch.setenv("COLUMNS", "10")
    assert plain(output.table(("ID", "STATE", "ERROR"), rows)).splitlines()[1] == "0123456789abcdef  start…  a ver…"
    monkeypatch.setattr("sys.stdout.isatty", lambda: False)
    assert plain(output.table(("ID", "STATE", "ERROR"), rows)).endswith("of somebody's")


def test_a_moment_is_cut_from_its_beginning_and_not_below_its_day_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("0123456789abcdef", "2026-11-25 22:41:07", "a very long text of somebody's")]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    assert (
        plain(output.table(("ID", "AT", "ERROR"), rows)).splitlines()[1] == "0123456789abcdef  11-25 22:41:07  a ver…"
    )


def test_a_sentence_goes_on_in_the_next_line_of_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("0123456789abcdef", "a text of two lines", "4"), ("b", "short", "5")]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "33")
    assert plain(output.table(("ID", "WHY", "N"), rows, prose=("WHY",))).splitlines() == [
        "ID                WHY           N",
        "0123456789abcdef  a text of     4",
        "                  two lines",
        "b                 short         5",
    ]


def test_a_table_without_rows_is_its_head() -> None:
    assert plain(output.table(("ID", "STATE"), [])) == "ID  STATE"


def test_colours_do_not_move_columns() -> None:
    text = output.table(("STATE", "X"), [(State.STARTED, 1), ("none", 2)])
    assert "\x1b[" in text
    assert [line.index(mark) for line, mark in zip(plain(text).splitlines(), "X12", strict=True)] == [9, 9, 9]


def test_a_cell_cannot_move_the_cursor_or_begin_a_line() -> None:
    assert plain(output.table(("A",), [("x\x1b[2J\ny\r",)])).splitlines() == ["A", "x�[2J y�"]


def test_fields_leave_out_what_has_no_value() -> None:
    text = plain(output.fields((("id", "x"), ("address", ""), ("lease", None), ("machines", 0))))
    assert text.splitlines() == ["id        x", "machines  0"]


def test_no_fields_are_no_lines() -> None:
    assert output.fields(()) == ""


@pytest.mark.parametrize(
    ("ago", "text"),
    [
        (timedelta(0), "0 s"),
        (timedelta(seconds=-5), "0 s"),
        (timedelta(seconds=119), "119 s"),
        (timedelta(seconds=120), "2 min"),
        (timedelta(minutes=119), "119 min"),
        (timedelta(hours=2), "2 h"),
        (timedelta(hours=47), "47 h"),
        (timedelta(hours=48), "2 d"),
    ],
)
def test_ages(ago: timedelta, text: str) -> None:
    assert output.age(NOW - ago, NOW) == text


@pytest.mark.parametrize(
    ("ms", "text"), [(0.42, "0.42 ms"), (37.14, "37.1 ms"), (999, "999 ms"), (2412, "2.41 s"), (75_000, "75 s")]
)
def test_durations_have_three_figures(ms: float, text: str) -> None:
    assert output.took(timedelta(milliseconds=ms)) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 20, "5.0 MiB"), (3 << 40, "3.0 TiB")]
)
def test_sizes(count: int, text: str) -> None:
    assert output.size(count) == text


def test_moments_are_local_time() -> None:
    assert output.moment(1_700_000_000_000) == datetime.fromtimestamp(1_700_000_000).strftime("%Y-%m-%d %H:%M:%S")
