import msgspec
import pytest

from hawker.cli.output import Form, as_json, line_of_json, note, show


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
