"""The command line of Firecracker's jailer, option by option as it documents them."""

from pathlib import Path

from hawker.host.cgroup_restore import Bounds
from hawker.ids import MachineId
from hawker.runtime.oci_bundle import cpu_shares
from hawker.runtime.vmm.contract import JailCell
from hawker.runtime.vmm.jailer import jailer_command

MIB = 1 << 20


def _command(*, netns: str | None = "/run/netns/m", unified: bool = False, weight: int = 100) -> tuple[str, ...]:
    cell = JailCell(
        machine_id=MachineId("0123456789abcd"),
        uid=4321,
        argv=("/opt/firecracker", "--api-sock", "/cell/vmm/api.sock"),
        grants=(),
        devices=("/dev/kvm",),
        netns=netns,
        bounds=Bounds(
            cpu_period_us=100_000,
            cpu_quota_us=200_000,
            cpu_shares=cpu_shares(weight),
            memory_bytes=288 * MIB,
            swapped_bytes=300 * MIB,
            pids=130,
        ),
        fds=(3,),
    )
    return jailer_command("/opt/jailer", cell, Path("/srv/run/jail"), "/hawker-ab12/0123456789abcd", unified)


def _cgroups(command: tuple[str, ...]) -> list[str]:
    return [command[place + 1] for place, word in enumerate(command) if word == "--cgroup"]


def test_the_whole_of_it() -> None:
    command = _command()
    assert command[: command.index("--cgroup-version")] == (
        "/opt/jailer",
        *("--id", "0123456789abcd"),
        *("--exec-file", "/opt/firecracker"),
        *("--uid", "4321"),
        *("--gid", "4321"),
        *("--chroot-base-dir", "/srv/run/jail"),
        *("--netns", "/run/netns/m"),
        "--new-pid-ns",
        *("--resource-limit", "no-file=4096"),
        *("--parent-cgroup", "hawker-ab12"),
    )
    assert command[command.index("--") :] == ("--", "--api-sock", "/cell/vmm/api.sock")
    assert "--daemonize" not in command, "its console is the keeper's to read"


def test_without_a_network_none_is_joined() -> None:
    assert "--netns" not in _command(netns=None)


def test_limits_of_control_groups_of_version_1() -> None:
    command = _command()
    assert command[command.index("--cgroup-version") + 1] == "1"
    assert _cgroups(command) == [
        f"cpu.shares={cpu_shares(100)}",
        "cpu.cfs_period_us=100000",
        "cpu.cfs_quota_us=200000",
        f"memory.limit_in_bytes={288 * MIB}",
        "pids.max=130",
    ]


def test_limits_of_control_groups_of_version_2() -> None:
    command = _command(unified=True)
    assert command[command.index("--cgroup-version") + 1] == "2"
    assert _cgroups(command) == [
        "cpu.weight=100",
        "cpu.max=200000 100000",
        f"memory.max={288 * MIB}",
        f"memory.swap.max={12 * MIB}",
        "pids.max=130",
    ]


def test_a_weight_is_the_same_after_all_its_changes() -> None:
    for weight in (1, 2, 100, 5000, 10_000):
        assert f"cpu.weight={weight}" in _cgroups(_command(unified=True, weight=weight))
