"""Attempts of a VMM that its guest has taken over, at files of the host and of other machines. A script is in its
place, in the jail that a VMM gets."""

import os
import stat
from pathlib import Path

import pytest

from hawker.runtime.vmm.contract import JailGrant
from tests.runtime.vmm.cells import MACHINE, OTHER, UIDS, Prison, With

pytestmark = [pytest.mark.anyio, pytest.mark.root]

WALK = """
def walk(top):
    for place, directories, files in os.walk(top):
        yield place
        yield from (os.path.join(place, name) for name in files)
"""


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file that anyone on the host may read, if it is there for him."""
    path = tmp_path / "secret"
    path.write_text("of the host")
    return path


def text_of(path: Path) -> str:
    return path.read_text()


def owner_of(path: Path) -> int:
    return path.stat().st_uid


def leave(directory: Path) -> None:
    """A device and a program of root's, which is more than a VMM can."""
    directory.mkdir(parents=True, mode=0o700)
    os.mknod(directory / "null", stat.S_IFCHR, os.makedev(1, 3))
    (directory / "null").chmod(0o666)
    (directory / "program").write_bytes(Path("/usr/bin/true").read_bytes())
    (directory / "program").chmod(0o4755)


async def test_a_vmm_sees_nothing_but_its_grants(cells: Prison, secret: Path) -> None:
    granted = JailGrant(secret, "/cell/kernel")
    await cells.launch(("/usr/bin/find", "/", "-xdev", "-not", "-type", "d"), With(grants=(granted,)))
    seen = set((await cells.end()).console.decode().split())
    libraries = {path for path in seen if path.startswith(("/lib", "/usr/lib"))}
    devices = {f"/dev/{name}" for name in "null zero full tty random urandom".split()}
    links = {f"/dev/{name}" for name in "fd stdin stdout stderr ptmx".split()}
    assert seen - libraries - devices - links == {"/usr/bin/find", "/cell/kernel", "/etc/ld.so.cache"}
    assert 0 < len(libraries) < 10


async def test_files_of_the_host_are_not_there(cells: Prison, secret: Path) -> None:
    attempts = [
        f"open({str(secret)!r}).read()",
        "open('/etc/shadow').read()",
        "os.listdir('/proc')",
        "os.listdir('/sys')",
    ]
    for attempt in attempts:
        assert eval(attempt), "for root of the host it is there"
        assert await cells.tries(attempt) == "no: FileNotFoundError 2"


async def test_a_granted_file_is_read_only_and_its_neighbours_are_not_shown(cells: Prison, secret: Path) -> None:
    (secret.parent / "neighbour").touch()
    end = await cells.script(
        """
        print(open("/cell/kernel").read())
        print(tried(lambda: open("/cell/kernel", "w")), tried(lambda: os.truncate("/cell/kernel", 0)))
        print(tried(lambda: os.unlink("/cell/kernel")), tried(lambda: os.rename("/cell/kernel", "/cell/vmm/mine")))
        print(sorted(os.listdir("/cell")), tried(lambda: os.listdir("/cell/kernel/..")))
        """,
        With(grants=(JailGrant(secret, "/cell/kernel"),)),
    )
    read, written, moved, neighbours = end.console.decode().splitlines()
    assert read == "of the host" == text_of(secret)
    assert written.count("no: ") == 2
    assert moved.count("no: ") == 2
    assert neighbours.startswith("['kernel', 'vmm']") and "neighbour" not in neighbours


async def test_a_vmm_writes_in_its_own_directory_and_nowhere_else(cells: Prison) -> None:
    end = await cells.script(
        WALK
        + """
for place in [each for each in walk("/") if os.path.isdir(each)]:
    if tried(lambda: open(os.path.join(place, "planted"), "w")).startswith("yes"):
        print(place)
"""
    )
    assert end.console.decode().split() == ["/cell/vmm"]
    assert owner_of(cells.run().vmm / "planted") == UIDS[MACHINE]


async def test_a_way_up_from_its_directory_ends_at_its_root(cells: Prison) -> None:
    assert (cells.run().path.parent).name == MACHINE
    assert await cells.tries("sorted(os.listdir('/cell/vmm/../../../../..'))") == await cells.tries(
        "sorted(os.listdir('/'))"
    )


async def test_another_machines_disks_and_sockets_are_not_there(cells: Prison) -> None:
    theirs = cells.run(OTHER)
    theirs.path.mkdir(parents=True, mode=0o700)
    (theirs.path / "layer").write_text("theirs")
    attempts = [
        f"open({str(theirs.path / 'layer')!r}).read()",
        f"os.listdir({str(theirs.path.parent.parent)!r})",
        f"os.link({str(theirs.path / 'layer')!r}, '/cell/vmm/theirs')",
    ]
    for attempt in attempts:
        assert await cells.tries(attempt) == "no: FileNotFoundError 2"


async def test_a_link_that_it_planted_leads_nowhere_in_the_next_jail(cells: Prison, secret: Path) -> None:
    """Neither the host's file behind it is given away when the jail is made again, nor is it seen inside."""
    assert await cells.tries(f"os.symlink({str(secret)!r}, '/cell/vmm/memory')") == "yes: None"
    assert (cells.run().vmm / "memory").read_text() == "of the host", "on the host it leads somewhere"
    await cells.jail.clear(MACHINE, cells.run())
    assert await cells.tries("open('/cell/vmm/memory').read()") == "no: FileNotFoundError 2"
    assert owner_of(secret) == 0


async def test_a_link_in_the_place_of_a_writable_file_is_refused(cells: Prison, secret: Path) -> None:
    disk = cells.directory / "disk"
    disk.symlink_to(secret)
    with pytest.raises(Exception, match="cannot be given to machine"):
        await cells.launch(("/usr/bin/true",), With(grants=(JailGrant(disk, "/cell/disk", writable=True),)))
    assert owner_of(secret) == 0


async def test_a_vmm_inherits_its_journal_and_pipes_and_no_other_descriptor(cells: Prison) -> None:
    end = await cells.script(
        """
        import stat
        for fd in range(1024):
            try:
                mode = os.fstat(fd).st_mode
            except OSError:
                continue
            print(fd, stat.S_ISFIFO(mode), stat.S_ISREG(mode))
        """
    )
    assert end.console.decode().splitlines() == ["0 True False", "1 True False", "2 True False", "3 False True"]


async def test_a_vmm_s_changes_of_its_streams_change_nothing_of_the_host(cells: Prison) -> None:
    before = os.stat("/dev/null")
    await cells.script("for fd in (0, 1, 2): os.fchmod(fd, 0o600)")
    after = os.stat("/dev/null")
    assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid)
    assert stat.S_ISCHR(after.st_mode)


async def test_a_device_or_a_program_left_in_its_directory_is_of_no_use(cells: Prison) -> None:
    leave(cells.run().vmm)
    assert await cells.tries("open('/cell/vmm/null')") == "no: PermissionError 13"
    assert await cells.tries("os.execv('/cell/vmm/program', ['program'])") == "no: PermissionError 13"
