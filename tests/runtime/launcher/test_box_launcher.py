"""Facts about launching a box beyond the drivers' contract: hostile roots, and what a failure leaves."""

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from hawker.clock import SystemClock
from hawker.errors import Unavailable
from hawker.host.mount import is_mounted, mounts
from hawker.ids import MachineId, new_machine_id
from hawker.runtime.launcher.launch import BoxLauncher
from hawker.runtime.launcher.launcher_trial import LauncherTrial, fill_trial_directory, give_files, observe

pytestmark = [pytest.mark.root, pytest.mark.anyio]

CLOCK = SystemClock()


@pytest.fixture
def directory(trial: LauncherTrial, tmp_path: Path) -> Path:
    """Of a machine with a root that its tenant made."""
    fill_trial_directory(tmp_path / "machine", trial.first_id)
    return tmp_path / "machine"


async def _launch(trial: LauncherTrial, directory: Path) -> tuple[MachineId, int]:
    launcher, machine_id = BoxLauncher(trial.cgroups), new_machine_id(CLOCK)
    launcher.lay_out(trial.machine(machine_id, directory).ours, directory)
    return machine_id, await launcher.run(machine_id, directory, ())


@pytest.mark.parametrize("name", ["volume", "dev", ".hawker"])
async def test_a_link_in_the_root_leads_nowhere_but_into_the_root(
    trial: LauncherTrial, directory: Path, tmp_path: Path, name: str
) -> None:
    """Each of these is where something is mounted, and each link names a directory of the host."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (directory / "root" / name).symlink_to(outside)
    (directory / "root" / str(outside).lstrip("/")).mkdir(parents=True)
    give_files(directory, trial.first_id)
    await _launch(trial, directory)
    assert list(outside.iterdir()) == []
    assert not is_mounted(outside)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda root: (root / "proc").symlink_to("/etc"), "mount on what is no directory: /proc"),
        (lambda root: (root / "sys").write_text(""), "mount on what is no directory: /sys"),
        (lambda root: (root / "dev").symlink_to("dev"), "make a place for /dev"),
        (lambda root: shutil.rmtree(root / "bin"), "execute /bin/hello"),
    ],
)
async def test_a_root_that_cannot_be_used_is_told_in_words_and_nothing_is_left(
    trial: LauncherTrial, directory: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    spoil(directory / "root")
    before = trial.cgroups.list()
    with pytest.raises(Unavailable, match=reason):
        await _launch(trial, directory)
    assert trial.cgroups.list() == before


async def test_no_mount_is_seen_on_the_host(trial: LauncherTrial, directory: Path) -> None:
    await _launch(trial, directory)
    assert mounts(directory) == []


async def test_no_new_privileges_and_a_score_are_set_when_asked(trial: LauncherTrial, directory: Path) -> None:
    launcher, machine_id = BoxLauncher(trial.cgroups), new_machine_id(CLOCK)
    config = msgspec.json.decode(trial.machine(machine_id, directory).ours)
    config["process"]["noNewPrivileges"] = True
    config["process"]["oomScoreAdj"] = 500
    launcher.lay_out(msgspec.json.encode(config), directory)
    pid = await launcher.run(machine_id, directory, ())
    group = trial.cgroups.path_of(machine_id)
    found = observe(pid, trial.cgroups.hierarchies, group)
    assert "NoNewPrivs:\t1" in found["status"]
    assert found["oom_score_adj"] == ("500",)


@pytest.mark.skipif(Path("/sys/module/apparmor").exists(), reason="this kernel has AppArmor")
async def test_a_profile_that_cannot_be_had_ends_the_launch_before_the_machine_begins(
    trial: LauncherTrial, directory: Path
) -> None:
    launcher, machine_id = BoxLauncher(trial.cgroups), new_machine_id(CLOCK)
    config = msgspec.json.decode(trial.machine(machine_id, directory).ours)
    config["process"]["apparmorProfile"] = "hawker-ab12"
    launcher.lay_out(msgspec.json.encode(config), directory)
    with pytest.raises(Unavailable, match="confine by the profile hawker-ab12"):
        await launcher.run(machine_id, directory, ())
    assert not trial.cgroups.knows(machine_id)


async def test_no_order_to_confine_goes_into_a_file_in_the_place_of_proc(trial: LauncherTrial, directory: Path) -> None:
    launcher, machine_id = BoxLauncher(trial.cgroups), new_machine_id(CLOCK)
    order = directory / "root/proc/self/attr/apparmor/exec"
    order.parent.mkdir(parents=True)
    order.write_text("")
    give_files(directory, trial.first_id)
    config = msgspec.json.decode(trial.machine(machine_id, directory).ours)
    config["process"]["apparmorProfile"] = "hawker-ab12"
    config["mounts"] = [mount for mount in config["mounts"] if mount["destination"] != "/proc"]
    launcher.lay_out(msgspec.json.encode(config), directory)
    with pytest.raises(Unavailable, match="confine by a /proc that is not the kernel's"):
        await launcher.run(machine_id, directory, ())
    assert order.read_text() == ""
    assert not trial.cgroups.knows(machine_id)
