"""Every system call by its number, every family of sockets, every protocol: tried from inside a container machine."""

import ctypes
import platform
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import anyio
import pytest

from hatch_build import compile_program, compiler_for
from hawker.clock import SystemClock
from hawker.host.mount import discard_overlay, fresh_overlay
from hawker.ids import InstanceId, NodeId, new_machine_id, new_ulid
from hawker.runtime.container import container_driver
from hawker.runtime.launcher.launcher_choice import LauncherChoice
from hawker.runtime.oci_bundle import seccomp_profile
from hawker.runtime.spec import InstanceLimits, InstanceSpec, ProcessSpec
from tests.rootfs import host_programs

pytestmark = [pytest.mark.root, pytest.mark.anyio]

CLOCK = SystemClock()
PROBE = Path(__file__).with_name("probe.c")
EPERM, ENOSYS, EPROTONOSUPPORT, EAFNOSUPPORT = 1, 38, 93, 97
UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
AUDIT, MPTCP, SCTP = 9, 262, 132
ENDED, KILLED = 250, 251
FIRST_ID = 0x40000000
PASSED_BY_THE_KERNEL = {335, 336} if platform.machine() == "x86_64" else set()
"""uretprobe and uprobe: no filter is asked, and they do something only where the kernel itself put them."""

Found = dict[str, dict[int, set[int]]]


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("probe") / "probe"
    root = Path(__file__).parents[2]
    compile_program(root, compiler_for(root, platform.machine()), [PROBE], program)  # their libc is built already
    return program


@pytest.fixture(params=[FIRST_ID, None], ids=["ids of its own", "the host's ids"])
def first_id(request: pytest.FixtureRequest) -> int | None:
    return cast("int | None", request.param)


@pytest.fixture(params=LauncherChoice)
async def found(
    request: pytest.FixtureRequest, first_id: int | None, probe: Path, node_id: NodeId, tmp_path: Path
) -> AsyncIterator[Found]:
    driver = container_driver(node_id, tmp_path / "machines", tmp_path / "crun", CLOCK, launcher=request.param)
    await driver.check()
    root = host_programs(tmp_path / "lower")
    shutil.copy(probe, root / "bin/probe")
    layer, target, trash = tmp_path / "layers/one", tmp_path / "root", tmp_path / "trash"
    fresh_overlay(root, layer, target, trash, first_id=first_id)
    spec = InstanceSpec(
        machine_id=new_machine_id(CLOCK),
        instance_id=InstanceId(new_ulid(CLOCK)),
        hostname="prober",
        processes=(ProcessSpec(argv=("/bin/probe",), env={}),),
        limits=InstanceLimits(cpus=1, cpu_weight=100, memory_mib=128, pids=64),
        rootfs=str(target),
        first_id=first_id,
    )
    try:
        with anyio.fail_after(240):
            await driver.prepare(spec)
            await driver.start(spec)
            ended = await driver.wait(spec.machine_id)
        assert ended.exit_code == 0, ended
        yield _parsed(b"".join(chunk.data for chunk in driver.output(spec.machine_id)).decode())
    finally:
        await driver.destroy(spec.machine_id)
        discard_overlay(layer, target, trash)


def _parsed(text: str) -> Found:
    found: Found = defaultdict(lambda: defaultdict(set))
    for line in text.splitlines():
        kind, number, result = line.split()
        found[kind][int(number)].add(int(result))
    assert found["done"], "the probe came to its end"
    return found


async def test_no_call_and_no_socket_but_those_allowed_is_reached(found: Found) -> None:
    _check_families(found)
    _check_protocols(found)
    _check_calls(found)


def _check_families(found: Found) -> None:
    for family, results in found["family"].items():
        assert 0 in results if family in (UNIX, INET, INET6, NETLINK) else results <= {ENOSYS, EAFNOSUPPORT}, family
    for family, results in found["disguised"].items():
        assert results <= {ENOSYS, EAFNOSUPPORT}, f"family {family} behind bits that the kernel does not look at"
    for family, results in found["raw"].items():
        assert 0 not in results or family in (UNIX, NETLINK), f"a raw socket of family {family}"
    for family, results in found["socketcall"].items():
        assert results == {EPERM}, family


def _check_protocols(found: Found) -> None:
    assert {protocol for protocol, results in found["netlink"].items() if 0 in results} <= {0, 4}
    assert found["netlink"][AUDIT] == {EPROTONOSUPPORT}, "else programs of accounts give up"
    assert found["inet"][MPTCP] == {EPROTONOSUPPORT} and found["inet"][SCTP] == {ENOSYS}
    assert {protocol for protocol, results in found["inet"].items() if 0 in results} <= {0, 6}


def _check_calls(found: Found) -> None:
    allowed = {name for rule in seccomp_profile()["syscalls"] for name in rule["names"] if "ALLOW" in rule["action"]}
    kinds = (
        {"call": b"x86_64", "call32": b"x86", "x32": b"x32"} if platform.machine() == "x86_64" else {"call": b"aarch64"}
    )
    for kind, architecture in kinds.items():
        assert len(found[kind]) == 1024
        for number, results in found[kind].items():
            name = _name(architecture, number | (0x40000000 if kind == "x32" else 0))
            if name not in allowed and not (kind == "call" and number in PASSED_BY_THE_KERNEL):
                assert results <= {EPERM, ENOSYS, KILLED}, f"{kind} {number} ({name})"
    reached = [number for number, results in found["call"].items() if not results & {EPERM, ENOSYS, KILLED}]
    assert len(reached) > 150, "a filter that refuses all proves nothing"


def _name(architecture: bytes, number: int) -> str:
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_syscall_resolve_num_arch.restype = ctypes.c_void_p
    library.seccomp_arch_resolve_name.restype = ctypes.c_uint32
    token = ctypes.c_uint32(library.seccomp_arch_resolve_name(architecture))
    found = library.seccomp_syscall_resolve_num_arch(token, number)
    return "" if not found else (ctypes.cast(found, ctypes.c_char_p).value or b"").decode()
