"""Spellings of values, and what does not fit."""

import pytest

from hawker.flytoml.app_config import AppConfig
from hawker.flytoml.document import read
from hawker.flytoml.problem import Problems
from hawker.flytoml.shape import shaped


def shape(text: str) -> tuple[AppConfig, list[str]]:
    root = read(text, ".toml")
    problems = Problems(root)
    return shaped(root, AppConfig, problems), [f"{each.path}: {each.text}" for each in problems.sorted()]


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("kill_timeout = 30", "kill_timeout", "30s"),
        ('kill_timeout = "1m30s"', "kill_timeout", "1m30s"),
        ("[env]\nA = 1\nB = true\nC = 'x'", "env", {"A": "1", "B": "true", "C": "x"}),
        ("[processes]\na = 'run \"my app\"'\nb = ['x']", "processes", {"a": ("run", "my app"), "b": ("x",)}),
    ],
)
def test_a_value_may_be_spelled_in_more_than_one_way(text: str, path: str, value: object) -> None:
    config, problems = shape(text)
    assert getattr(config, path) == value and not problems


def test_sizes_have_units() -> None:
    config, problems = shape("[[vm]]\nmemory = '2gb'\n[[vm]]\nmemory = 256\n[mounts]\ninitial_size = '1tb'")
    assert [vm.memory for vm in config.vm or ()] == [2048, 256] and not problems
    assert config.mounts is not None and config.mounts[0].initial_size == 1024


def test_a_number_of_a_check_is_milliseconds() -> None:
    config, _ = shape("[http_service]\n[[http_service.checks]]\ninterval = 1500")
    assert config.http_service is not None and config.http_service.checks is not None
    assert config.http_service.checks[0].interval == "1500ms"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("swap_size_mb = 'x'", 'swap_size_mb: wanted a number, got "x"'),
        ("swap_size_mb = true", "swap_size_mb: wanted a number, got true"),
        ("swap_size_mb = 1.5", "swap_size_mb: wanted a whole number, got 1.5"),
        ("app = 1", "app: wanted text, got 1"),
        ("app = 1979-05-27", 'app: wanted text, got "1979-05-27"'),
        ("env = 1", "env: wanted a table, got 1"),
        ("env = {A = []}", "env.A: wanted text, a number, true or false, got a list"),
        ("services = 1", "services: wanted a list, got 1"),
        ("deploy = []", "deploy: wanted a table, got a list"),
        ("deploy = {max_unavailable = 'x'}", 'deploy.max_unavailable: wanted a number, got "x"'),
        ("kill_timeout = '-1s'", 'kill_timeout: wanted a duration such as 10s or 1m30s, got "-1s"'),
        ("vm = {memory = '1 parsec'}", 'vm.memory: wanted a size such as 512mb, got "1 parsec"'),
        ("[processes]\na = 'x \"'", 'processes.a: wanted a command (no closing quotation), got "x \\""'),
        ("[processes]\na = [1]", "processes.a: wanted a list of texts, got a list"),
        ("primary_regio = 'ams'", "primary_regio: unknown key; did you mean primary_region?"),
        ("zzz = 1", "zzz: unknown key"),
        ("http_service = {force_https = 1}", "http_service.force_https: wanted true or false, got 1"),
    ],
)
def test_a_value_that_does_not_fit_is_told(text: str, said: str) -> None:
    assert shape(text)[1] == [said]
