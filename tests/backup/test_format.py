"""What is read from a repository is bounded and means what it says, or is refused."""

import msgspec
import pytest

from hawker.archive.failure import ArchiveDamaged
from hawker.backup.format import (
    CHUNK_BYTES,
    HOLE,
    NAME_BYTES,
    SEGMENT_BYTES,
    BackupManifest,
    PruneMarks,
    RepositoryKeys,
    checked,
    config_of,
    decoded,
    fitting,
    is_backup,
    repository_key,
)
from hawker.clock import SystemClock
from hawker.errors import Fault
from hawker.vault import KEY_BYTES
from tests.backup.conftest import ABOUT, PASSPHRASE

CLOCK = SystemClock()
KEYS = RepositoryKeys(bytes(32), CLOCK)


def test_chunk_opens_only_under_its_own_name_and_length() -> None:
    data = b"x" * CHUNK_BYTES
    name = KEYS.chunk_name(data)
    sealed = KEYS.seal_chunk(name, data)
    assert KEYS.open_chunk(name, sealed, CHUNK_BYTES) == data
    for other, length in ((KEYS.chunk_name(b"y"), CHUNK_BYTES), (name, CHUNK_BYTES - 1)):
        with pytest.raises(ArchiveDamaged):
            KEYS.open_chunk(other, sealed, length)


def test_chunk_that_expands_to_more_than_it_may_is_refused_before_it_does() -> None:
    bomb = bytes(64 << 20)
    name = KEYS.chunk_name(bomb)
    sealed = KEYS.seal_chunk(name, bomb)
    assert len(sealed) < 64 << 10
    with pytest.raises(ArchiveDamaged, match="as long as it has to be"):
        KEYS.open_chunk(name, sealed, CHUNK_BYTES)


def test_names_of_one_content_differ_between_repositories() -> None:
    assert KEYS.chunk_name(b"a") != RepositoryKeys(b"1" * 32, CLOCK).chunk_name(b"a")


def test_contents_of_other_sizes_or_segments_have_other_names() -> None:
    made = [
        msgspec.structs.replace(ABOUT, size_bytes=size, segments=segments)
        for size, segments in ((1, b"a"), (1, b"b"), (2, b"a"), (11, b"1 a"), (1, b"1 1 a"))
    ]
    assert len({KEYS.content_name(each) for each in made}) == len(made)
    assert KEYS.content_name(made[0]) == KEYS.content_name(
        msgspec.structs.replace(made[0], created_at=2.0, sent_bytes=3)
    )


def test_segment_of_holes_is_a_hole() -> None:
    assert KEYS.segment_name([HOLE, HOLE]) == HOLE
    assert KEYS.segment_name([KEYS.chunk_name(b"a"), HOLE]) not in (HOLE, KEYS.segment_name([KEYS.chunk_name(b"a")]))


@pytest.mark.parametrize(
    "fields",
    [
        {"format": 2},
        {"size_bytes": 0},
        {"size_bytes": 1 << 60},
        {"size_bytes": -1},
        {"segments": bytes(NAME_BYTES)},
        {"segments": bytes(2 * NAME_BYTES + 1)},
        {"filled": b"1"},
    ],
)
def test_manifest_that_cannot_be_is_refused(fields: dict[str, object]) -> None:
    good = msgspec.structs.replace(ABOUT, size_bytes=2 * SEGMENT_BYTES, segments=bytes(2 * NAME_BYTES))
    assert checked(good).names() == checked(msgspec.structs.replace(good, filled=b"12")).names() == [HOLE, HOLE]
    with pytest.raises(ArchiveDamaged):
        checked(msgspec.structs.replace(good, **fields))


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\xdf\xff\xff\xff\xff", b"\x91" * 100_000, msgspec.msgpack.encode({})])
def test_bytes_that_are_no_manifest_are_refused(data: bytes) -> None:
    with pytest.raises(ArchiveDamaged):
        decoded(data, BackupManifest)


def test_a_repository_opens_with_its_passphrase_alone() -> None:
    key = CLOCK.token_bytes(KEY_BYTES)
    config = config_of(key, PASSPHRASE, CLOCK)
    assert repository_key(config, PASSPHRASE, CLOCK) == key
    with pytest.raises(Fault):
        repository_key(config, b"another passphrase", CLOCK)
    with pytest.raises(ArchiveDamaged, match="format 2"):
        repository_key(msgspec.structs.replace(config, format=2), PASSPHRASE, CLOCK)


def test_a_backup_is_named_by_volume_and_time() -> None:
    assert is_backup("vol_0123abcd/20261123T161500Z-ab12")
    for name in (
        "vol_a",
        "../x/20261123T161500Z-ab12",
        "vol_a/../20261123T161500Z-ab12",
        "vol_a/20261123T161500Z-ab12\n",
    ):
        assert not is_backup(name)


def test_marks_that_fit_are_the_oldest_and_segments_come_before_packs() -> None:
    since = {"packs/old": 1.0, "packs/new": 2.0, "segments/new": 2.0, "segments/newer": 3.0}
    marks = PruneMarks(since=since, at=4.0)
    assert fitting(marks) == marks
    bytes_of_two = 1024 + 2 * 14 + len("packs/old" + "segments/new")
    assert fitting(marks, bytes_of_two) == PruneMarks(since={"packs/old": 1.0, "segments/new": 2.0}, at=4.0)
    assert fitting(marks, bytes_of_two - 1).since == {"packs/old": 1.0}


def test_marks_that_fit_may_be_read_again() -> None:
    marks = PruneMarks(since={f"segments/{number:02x}/{number:064x}": float(number) for number in range(2000)})
    kept = fitting(marks, 100_000)
    sealed = KEYS.seal("marks", msgspec.msgpack.encode(kept))
    assert 95_000 < len(sealed) <= 100_000
