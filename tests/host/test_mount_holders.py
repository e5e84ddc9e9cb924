import subprocess
from pathlib import Path

import pytest

from hawker.host.block import loops
from hawker.host.mount import mount_holders, unmount
from tests.host.strangers import stranger
from tests.waiting import wait_for

pytestmark = pytest.mark.root


def mounted(folder: Path) -> tuple[Path, Path]:
    """Where it is mounted, and its device. Hosts of a street let go of what is below a folder of that name."""
    target, file = folder / "mounts" / "mounted", folder / "disk"
    target.mkdir(parents=True)
    file.write_bytes(b"")
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", file, "16M"], check=True)
    subprocess.run(["mount", "-o", "loop", file, target], check=True)
    ((device, _),) = list(loops(folder))
    return target, Path(device)


def test_a_stranger_that_copied_the_mounts_is_named_until_it_ends(tmp_path: Path) -> None:
    target, device = mounted(tmp_path)
    try:
        wait_for(lambda: mount_holders([device]) == {})  # whoever begins elsewhere may have a copy for a moment
        with stranger() as pid:
            unmount(target)
            (found,) = (each for each in mount_holders([device])[device] if each.pid == pid)
            assert found.name == "sleep"
            assert str(found).startswith(f"process {pid} (sleep) in mount namespace ")
    finally:
        unmount(target)
    assert all(each.pid != pid for each in mount_holders([device]).get(device, ()))


def test_a_path_that_is_no_device_is_held_by_nobody(tmp_path: Path) -> None:
    assert mount_holders([tmp_path / "nothing"]) == {} and mount_holders([]) == {}
