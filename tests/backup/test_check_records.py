"""What is known of backups since they were read is read once, whoever asks for it and however often."""

import threading
from pathlib import Path

import pytest

from hawker.archive.directory import DirectoryBackend
from hawker.backup.check_records import BackupCheckRecords
from hawker.backup.checks import BackupCheck, BackupChecks
from hawker.backup.format import MOST_CHECKS_BYTES, RepositoryKeys
from hawker.backup.place import BackupPlace
from hawker.clock import ManualClock

pytestmark = pytest.mark.anyio
NOW = 1_800_000_000.0


class Watched(RepositoryKeys):
    """Knows in which threads it sealed and opened."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(bytes(32), clock)
        self.opened, self.threads = 0, set[int]()

    def seal(self, owner: str, data: bytes) -> bytes:
        self.threads.add(threading.get_ident())
        return super().seal(owner, data)

    def open(self, owner: str, sealed: bytes) -> bytes:
        self.opened += 1
        self.threads.add(threading.get_ident())
        return super().open(owner, sealed)


class Records:
    def __init__(self, root: Path, clock: ManualClock) -> None:
        self.root, self.clock = root, clock
        self.keys = Watched(clock)
        self.records = self.other("here")

    def other(self, name: str) -> BackupCheckRecords:
        """As another node has them."""

        async def keys() -> RepositoryKeys:
            return self.keys

        place = BackupPlace(DirectoryBackend(self.root / "kept"), self.root / name)
        return BackupCheckRecords(place, keys, self.clock)


@pytest.fixture
def kept(tmp_path: Path) -> Records:
    return Records(tmp_path, ManualClock(NOW))


def of(**moments: float) -> BackupChecks:
    return BackupChecks(backups={name.replace("_", "/"): BackupCheck(verified_at=at) for name, at in moments.items()})


async def test_checks_are_opened_once_until_another_object_is_there_and_never_on_the_loop(kept: Records) -> None:
    await kept.records.add(of(acme_web_a=NOW, acme_web2_b=NOW, other_web_c=NOW))
    for _ in range(3):
        assert (await kept.records.below("acme/web/")).keys() == {"acme/web/a"}
        assert (await kept.records.all()).backups.keys() == {"acme/web/a", "acme/web2/b", "other/web/c"}
    assert kept.keys.opened == 1
    await kept.other("there").add(of(acme_web_d=NOW))
    before = kept.keys.opened
    assert (await kept.records.below("acme/web/")).keys() == {"acme/web/a", "acme/web/d"}
    assert await kept.records.below("nobody/") == {} and kept.keys.opened == before + 1
    assert threading.get_ident() not in kept.keys.threads


async def test_check_of_the_future_is_believed_once_its_time_has_come(kept: Records) -> None:
    await kept.records.add(of(acme_web_a=NOW))
    kept.clock.advance(-86_400)
    assert await kept.records.below("acme/") == {"acme/web/a": BackupCheck()} == (await kept.records.all()).backups
    kept.clock.advance(86_400)
    assert (await kept.records.below("acme/"))["acme/web/a"].verified_at == NOW


async def test_checks_that_are_too_large_say_nothing_and_go_with_the_next(
    kept: Records, caplog: pytest.LogCaptureFixture
) -> None:
    await kept.records.add(of(acme_web_a=NOW))
    large = kept.root / "kept" / "verified" / "0123"
    large.touch()
    with large.open("r+b") as file:
        file.truncate(MOST_CHECKS_BYTES + 1)
    assert (await kept.records.below("acme/")).keys() == {"acme/web/a"} and "cannot be read" in caplog.text
    await kept.records.add(of(acme_web_b=NOW))
    assert not large.exists() and len((await kept.records.all()).backups) == 2
