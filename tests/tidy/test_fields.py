"""The rule of fields finds those that say nothing, and nothing else."""

import pytest

from tests.tidy.fields import described_fields, telling_fields
from tests.tidy.test_imports import lines

HEAD = 'class Lease(msgspec.Struct, frozen=True):\n    """{said}"""\n\n'


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ("A right.", '    ends: float\n    """Unix seconds."""\n'),
        ("A right.", "    ends: float  # Unix seconds\n"),
        ("A right until `ends`, Unix seconds.", "    ends: float\n"),
        ("A right. Times are Unix seconds.", "    ends_at: float\n"),
    ],
)
def test_field_that_says_something_is_left(said: str, field: str) -> None:
    assert lines(described_fields, record__lease=HEAD.format(said=said) + field) == []


def test_field_of_a_type_of_its_own_is_left() -> None:
    assert lines(described_fields, record__lease=HEAD.format(said="A right.") + "    machine: MachineId | None\n") == []


@pytest.mark.parametrize(
    ("said", "field", "subject"),
    [
        ("A right that ends.", "    ends: float\n", "Lease.ends"),
        ("A right.", "    ends_at: float\n", "Lease.ends_at"),
        ("A right.", '    ends: float\n    owner: str\n    """A person."""\n', "Lease.ends"),
    ],
)
def test_field_that_says_nothing_is_found(said: str, field: str, subject: str) -> None:
    assert lines(described_fields, record__lease=HEAD.format(said=said) + field) == [subject]


@pytest.mark.parametrize("base", ["Request", "Answer", "ValueObject"])
def test_silent_field_of_a_body_or_a_value_is_found(base: str) -> None:
    silent = f"class Lease({base}, frozen=True):\n    ends: float\n"
    assert lines(described_fields, record__lease=silent) == ["Lease.ends"]


def test_field_of_a_private_value_or_a_setting_is_left() -> None:
    silent = "class {name}(msgspec.Struct):\n    ends: float\n"
    assert lines(described_fields, record__lease=silent.format(name="_Lease")) == []
    assert lines(described_fields, settings=silent.format(name="Settings")) == []


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("Of which app.", ["A.b"]),
        ("The same as `c`, in lower case.", ["A.b"]),
        ("Its id.", ["A.b"]),
        ("The app's id, or empty.", []),
        ("Often empty, and never more than 9.", []),
    ],
)
def test_the_text_of_a_field_says_its_noun(said: str, found: list[str]) -> None:
    text = f'class A:\n    b: str\n    """{said}"""\n'
    assert lines(telling_fields, record__lease=text) == found
    assert lines(telling_fields, worker__lease=text) == []
