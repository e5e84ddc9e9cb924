"""Attempts of a VMM that its guest has taken over, at the host's kernel: calls that a VMM has no use for, users,
capabilities, namespaces, devices. A script is in its place, in the jail that a VMM gets."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.host import netns
from hawker.ids import MachineId
from hawker.runtime.vmm import keeper
from tests.runtime.vmm.cells import MACHINE, OTHER, UIDS, Prison, With

pytestmark = [pytest.mark.anyio, pytest.mark.root]

CALLS = {
    "mount": 'b"/", b"/cell", None, 4096, None',
    "umount2": 'b"/cell/vmm", 2',
    "pivot_root": 'b"/", b"/cell"',
    "chroot": 'b"/cell"',
    "unshare": "0x10000000",
    "setns": "3, 0",
    "ptrace": "16, 1, 0, 0",
    "process_vm_readv": "1, None, 0, None, 0, 0",
    "init_module": "None, 0, b''",
    "delete_module": "b'ext4', 0",
    "reboot": "0x01234567",
    "swapon": 'b"/cell/vmm/x", 0',
    "sethostname": 'b"x", 1',
    "clock_settime": "0, b'\\0' * 16",
    "acct": "None",
    "klogctl": "3, None, 0",
    "ioperm": "0, 1, 1",
    "iopl": "3",
    "quotactl": "0, None, 0, None",
    "fanotify_init": "0, 0",
    "name_to_handle_at": "0, b'/', None, None, 0",
    "open_by_handle_at": "0, None, 0",
    "vhangup": "",
    "personality": "0xffffffff",
}
NUMBERS = {"add_key": 248, "keyctl": 250, "io_uring_setup": 425, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323}
"""On x86-64: what the C library has no function for."""


NAMESPACES = [name for name in ("mnt", "pid", "ipc", "uts", "net", "cgroup") if os.path.exists(f"/proc/self/ns/{name}")]


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """Another process of this host."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        yield other
        other.kill()


async def test_calls_that_a_vmm_has_no_use_for_do_not_exist(cells: Prison) -> None:
    lines = [f"print({name!r}, tried(lambda: call({name!r}, {given})))" for name, given in CALLS.items()]
    said = (await cells.script("\n".join(lines))).console.decode().splitlines()
    assert said == [f"{name} no: OSError 38" for name in CALLS]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of these calls are another processor's")
async def test_calls_by_number_do_not_exist_either(cells: Prison) -> None:
    lines = [f"print(tried(lambda: call('syscall', {number}, 0, 0, 0, 0, 0)))" for number in NUMBERS.values()]
    said = (await cells.script("\n".join(lines))).console.decode().splitlines()
    assert said == ["no: OSError 38"] * len(NUMBERS)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only there is an older set of calls")
async def test_calls_of_the_32_bit_kind_end_it(cells: Prison) -> None:
    """int 0x80 with number 20, getpid, in a page of its own."""
    end = await cells.script(
        """
        import mmap
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")
        print("got", ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())
        """
    )
    assert end.status == -31, "SIGSYS"
    assert end.console == b""


async def test_a_vmm_is_nobody_and_becomes_nobody_else(cells: Prison) -> None:
    end = await cells.script(
        """
        print(os.getresuid(), os.getresgid(), os.getgroups())
        print(tried(lambda: os.setuid(0)), tried(lambda: os.setgid(0)), tried(lambda: os.setgroups([0])))
        """
    )
    who, became = end.console.decode().splitlines()
    uid = UIDS[MACHINE]
    assert who == f"({uid}, {uid}, {uid}) ({uid}, {uid}, {uid}) []"
    assert became == " ".join(["no: PermissionError 1"] * 3)


async def test_a_vmm_has_no_capability_and_can_gain_none(cells: Prison) -> None:
    await cells.begin("print('ready'); time.sleep(1000)")
    status = dict(line.split(":\t", 1) for line in _proc(cells, "status").read_text().splitlines() if ":\t" in line)
    sets = {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    assert set(sets.values()) == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


async def test_every_namespace_is_its_own(cells: Prison) -> None:
    await cells.begin("print('ready'); time.sleep(1000)")
    for kind in NAMESPACES:
        assert os.readlink(_proc(cells, f"ns/{kind}")) != os.readlink(f"/proc/self/ns/{kind}")


async def test_two_machines_have_users_and_namespaces_apart(cells: Prison) -> None:
    for machine_id in (MACHINE, OTHER):
        await cells.begin("print('ready'); time.sleep(1000)", With(machine_id=machine_id))
    for kind in NAMESPACES:
        assert os.readlink(_proc(cells, f"ns/{kind}")) != os.readlink(_proc(cells, f"ns/{kind}", OTHER))
    assert _proc(cells, "").stat().st_uid != _proc(cells, "", OTHER).stat().st_uid


async def test_no_other_process_can_be_signalled(cells: Prison, bystander: subprocess.Popen[bytes]) -> None:
    """Not the host's, and not its keeper, whose user is the same."""
    end = await cells.script(
        f"""
        print(os.getpid(), os.getppid())
        print([each for each in range(2, 40000) if tried(lambda: os.kill(each, 0)) != "no: ProcessLookupError 3"])
        print(tried(lambda: os.kill({bystander.pid}, 9)), tried(lambda: os.pidfd_open({bystander.pid})))
        """
    )
    assert end.console.decode().splitlines() == ["1 0", "[]", "no: ProcessLookupError 3 no: ProcessLookupError 3"]
    assert bystander.poll() is None


async def test_devices_that_were_not_granted_are_not_there_and_cannot_be_made(cells: Prison) -> None:
    for name in ("kvm", "net/tun", "mem", "kmsg", "loop0", "vda", "sda", "fuse", "vsock", "vhost-net"):
        assert await cells.tries(f"open('/dev/{name}')") == "no: FileNotFoundError 2"
    assert await cells.tries("os.mknod('/cell/vmm/zero', 0o20666, os.makedev(1, 5))") == "no: OSError 38"


async def test_a_granted_device_is_there_and_its_user_s(cells: Prison) -> None:
    assert await cells.tries("open('/dev/net/tun', 'rb+', 0).close()", With(devices=("/dev/net/tun",))) == "yes: None"
    assert os.stat("/dev/net/tun").st_uid == 0


async def test_a_tap_of_the_host_s_network_cannot_be_taken(cells: Prison) -> None:
    """TUNSETIFF in its own, empty namespace needs a capability, and no device is there to attach to."""
    end = await cells.script(
        """
        import fcntl
        request = b"tap0".ljust(16, b"\\0") + b"\\x02\\x10" + bytes(22)
        print(tried(lambda: fcntl.ioctl(open("/dev/net/tun", "rb+", 0), 0x400454CA, request)))
        """,
        With(devices=("/dev/net/tun",)),
    )
    assert end.console.decode().strip() == "no: PermissionError 1"


@pytest.mark.parametrize(
    "family, kind", [("NETLINK", "RAW"), ("PACKET", "RAW"), ("VSOCK", "STREAM"), ("ALG", "SEQPACKET")]
)
async def test_sockets_that_know_no_network_namespace_do_not_exist(cells: Prison, family: str, kind: str) -> None:
    attempt = f"socket.socket(socket.AF_{family}, socket.SOCK_{kind})"
    assert await cells.tries(attempt) == "no: OSError 38"


async def test_raw_sockets_are_refused(cells: Prison) -> None:
    attempt = "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)"
    assert await cells.tries(attempt) == "no: PermissionError 1"


async def test_the_host_s_own_listeners_cannot_be_reached(cells: Prison) -> None:
    name = f"\0hawker-escape-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as abstract, socket.create_server(("127.0.0.1", 0)) as tcp:
        abstract.bind(name)
        abstract.listen()
        port = tcp.getsockname()[1]
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(name)
        assert await cells.tries(f"socket.socket(socket.AF_UNIX).connect({name!r})") == "no: ConnectionRefusedError 111"
        with socket.create_connection(("127.0.0.1", port)):
            pass
        attempt = f"socket.create_connection(('127.0.0.1', {port}), 5)"
        assert await cells.tries(attempt) == "no: ConnectionRefusedError 111"  # by its own loopback


async def test_a_vmm_is_in_the_network_that_it_was_given(cells: Prison) -> None:
    path = cells.directory / "netns"
    netns.create(path, lambda _: None)
    try:
        await cells.begin("print('ready'); time.sleep(1000)", With(netns=str(path)))
        assert _proc(cells, "ns/net").stat().st_ino == path.stat().st_ino
    finally:
        netns.delete(path)


def _proc(cells: Prison, name: str, machine_id: MachineId = MACHINE) -> Path:
    record = keeper.read_record(cells.run(machine_id))
    return Path(f"/proc/{record.vmm}") / name
