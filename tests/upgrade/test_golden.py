"""What older versions wrote is read by this one; what this one writes differently has been decided on."""

from collections.abc import Mapping

import pytest

from tests.upgrade import specimen
from tests.upgrade.golden import File, bytes_of, changed, files, golden, newest
from tests.upgrade.specimen import anonymous
from tests.upgrade.stored import Stored, everything

STORED = {stored.name: stored for stored in everything()}

GONE: Mapping[str, str] = {}
"""What is stored no more, by name, and why no later version needs to read it."""

CHANGED: Mapping[str, str] = {
    "bucket-incoming.1": "a copy has no digest of its own: all of it is compared, in blocks, before it is owned"
}
"""Golden files (`NAME.NUMBER`) whose fields this version reads differently or drops, and why nothing is lost by it."""


@pytest.mark.parametrize("file", list(files()), ids=lambda file: file.path.stem)
def test_a_record_an_older_version_wrote_is_read_as_it_was_meant(file: File) -> None:
    if file.name in GONE:
        return
    stored, written = STORED[file.name], file.read()
    for text in (written.full, written.least):
        data = bytes_of(text, stored)
        read = stored.as_plain(stored.decode(data))
        assert file.path.stem in CHANGED or specimen.contains(read, stored.plain(data)), (read, stored.plain(data))


def test_a_change_of_what_is_written_has_been_decided_on() -> None:
    undecided = [stored.name for stored, _ in changed()]
    assert undecided == [], (
        f'what is stored has another shape now: {", ".join(undecided)}. Decide by docs/upgrade.md, "When what is stored'
        ' changes", whether older versions still read it, then run: python -m tests.upgrade.golden'
    )


def test_every_golden_file_is_of_something_that_is_stored() -> None:
    assert {file.name for file in files()} - set(STORED) == set(GONE)


@pytest.mark.parametrize("stored", STORED.values(), ids=lambda stored: stored.name)
def test_the_newest_golden_file_is_what_this_version_writes(stored: Stored) -> None:
    """So a file says nothing that is not so, and what is made for it sets every field."""
    last = newest()[stored.name].read()
    made = golden(stored)
    assert (last.full, last.least) == (made.full, made.least)
    assert anonymous(last.shape) == anonymous(made.shape)


def test_a_field_that_is_lost_is_noticed() -> None:
    assert specimen.contains({"a": [1, {"b": 2, "new": 3}]}, {"a": [1, {"b": 2}]})
    for now in ({"a": [1, {"b": 3}]}, {"a": [1]}, {}, {"a": None}):
        assert not specimen.contains(now, {"a": [1, {"b": 2}]})
