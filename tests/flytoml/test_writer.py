"""What is written as TOML reads as it was."""

import tomllib

from hawker.flytoml.writer import toml_text


def test_keys_come_before_tables_and_an_absent_value_is_left_away() -> None:
    document = {"http": {"port": 80, "checks": [{"path": "/"}]}, "app": "shop", "none": None, "on": True}
    text = toml_text(document)
    assert text == 'app = "shop"\non = true\n\n[http]\nport = 80\n\n[[http.checks]]\npath = "/"\n'
    assert tomllib.loads(text) == {"app": "shop", "on": True, "http": {"port": 80, "checks": [{"path": "/"}]}}


def test_tables_in_lists_with_other_values_are_inline() -> None:
    document = {"a": [1, {"b c": 'q"\n\x7f', "d": {}}]}
    assert tomllib.loads(toml_text(document)) == document
