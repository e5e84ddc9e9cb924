"""Files as people write them: each becomes what stands beside it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.flytoml.problem import MAX_PROBLEMS
from hawker.flytoml.reader import configs_of, read_app_config
from tests.flytoml import golden


@pytest.mark.parametrize("path", golden.files(), ids=lambda path: path.name)
def test_a_file_becomes_what_is_expected(path: Path) -> None:
    assert golden.outcome(path) == golden.expected(path).read_text()


def test_nothing_is_expected_of_a_file_that_is_gone() -> None:
    known = {golden.expected(path) for path in golden.files()}
    assert known == {path for path in golden.FOLDER.iterdir() if path.suffix == ".expected"} and len(known) >= 15


def test_a_lax_reader_takes_unknown_keys_with_a_warning() -> None:
    assert read_app_config("zzz = 1", ".toml").config is None
    reading = read_app_config("zzz = 1", ".toml", lax=True)
    assert reading.config is not None and [each.warning for each in reading.problems] == [True]


def test_a_lax_reader_passes_over_what_a_file_asks_of_hosts_with_a_warning() -> None:
    text = """
host_dedication_id = "a"
[[vm]]
memory = "1gb"
host_dedication_id = "a"
required_host_features = ["avx"]
[deploy.release_command_vm]
host_dedication_id = "a"
"""
    assert not any(problem.warning for problem in read_app_config(text, ".toml").problems)
    reading = read_app_config(text, ".toml", lax=True)
    assert len(reading.problems) == 4 and all(problem.warning for problem in reading.problems)
    assert reading.config is not None and reading.config.vm is not None and reading.config.vm[0].memory == 1024


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("persist_rootfs = 'sometimes'", "vm.persist_rootfs: must be never, restart, always"),
        ("max_memory_mb = 100", "vm.max_memory_mb: must not be below"),
        ("required_host_features = ['avx']", "vm[0].required_host_features: not served"),
        ("memory_mb = '1gb'", "vm[0].memory_mb: wanted a number"),
    ],
)
def test_a_size_that_is_not_served_is_refused_by_name(line: str, said: str) -> None:
    (problem,) = read_app_config(f"[[vm]]\n{line}\n", ".toml").problems
    assert f"{problem.path}: {problem.text}".startswith(said) and not problem.warning


def test_the_current_spelling_wins_over_an_older_one() -> None:
    reading = read_app_config("[mounts]\nsource = 'a'\n[mount]\nsource = 'b'\n", ".toml")
    assert "mount" in {problem.path for problem in reading.problems}


def test_thousands_of_errors_are_told_by_the_hundred() -> None:
    unknown = read_app_config("".join(f"primary_regio{n} = 1\n" for n in range(4000)), ".toml")
    assert unknown.config is None and len(unknown.problems) == MAX_PROBLEMS


def test_thousands_of_groups_are_refused_at_once() -> None:
    groups = "".join(f"g{n} = 'x'\n" for n in range(2000))
    checks = "".join(f"[checks.c{n}]\n" for n in range(2000))
    problems = read_app_config(f"[processes]\n{groups}{checks}", ".toml").problems
    assert [problem.text for problem in problems] == ["there are more than 64 groups"]


def test_configs_have_every_image_that_a_file_names() -> None:
    def check(image: str) -> dict[str, object]:
        return {"machine_checks": [{"command": ["x"], "image": image}, {"command": ["y"]}]}

    document: dict[str, object] = {
        "build": {"image": "app"},
        "http_service": {"internal_port": 80, **check("web")},
        "services": [{"internal_port": 81, **check("other")}],
        **check("own"),
    }
    assert [each.image for each in configs_of(document, None)] == ["app", "other", "own", "web"]
    assert configs_of({"services": 1}, "app") == []


_KEYS = st.sampled_from(
    "app build deploy env processes mounts mount compute vm http_service services checks files experimental metrics "
    "image checks processes command headers strategy kill_timeout source interval x".split()
)
_ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.text(max_size=8) | _KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(_KEYS, _ANY, max_size=6))
def test_whatever_a_document_holds_it_is_read_or_refused(document: dict[str, object]) -> None:
    reading = read_app_config(json.dumps(document), ".json")
    assert (reading.config is None) == any(not problem.warning for problem in reading.problems)
