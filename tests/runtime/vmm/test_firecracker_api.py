"""What is said to Firecracker is what its API takes, whatever the machine."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hawker.ids import MachineId
from hawker.runtime.spec import DiskLimits, GuestLink
from hawker.runtime.vmm import firecracker_api as api
from hawker.runtime.vmm.contract import Vm, VmDrive
from tests.vmm.firecracker_document import FIRECRACKER

limits = st.builds(DiskLimits, bytes_per_s=st.integers(0, 1 << 40), operations_per_s=st.integers(0, 1 << 20))
drives = st.builds(
    VmDrive,
    name=st.from_regex("[a-z0-9-]{1,20}", fullmatch=True),
    path=st.text(),
    read_only=st.booleans(),
    limits=limits,
)
links = st.none() | st.just(GuestLink(mac="02:00:00:00:00:01", addresses=(), gateways=()))


@given(st.lists(drives, max_size=6), links, st.integers(1, 32), st.integers(1, 1 << 20), st.text())
def test_every_request_is_one_that_the_description_has(
    drives: list[VmDrive], link: GuestLink | None, cpus: int, memory_mib: int, text: str
) -> None:
    vm = Vm(
        machine_id=MachineId("0123456789abcd"),
        cpus=cpus,
        memory_mib=memory_mib,
        max_memory_mib=2 * memory_mib,
        kernel=text,
        initramfs=text,
        command_line=text,
        drives=tuple(drives),
        directory="/cell/vmm",
        link=link,
    )
    more = (api.START, api.PAUSE, api.RESUME, api.VERSION, api.STATISTICS, api.MACHINE, api.CONFIGURATION)
    changes = (api.create_snapshot("/s"), api.load_snapshot("/s"), api.inflate(1), api.look_again("a-b", "/p"))
    for request in (*api.boot(vm, "/cell/vmm/vsock.sock"), *more, *changes):
        body = None if request.body is None else msgspec.json.decode(msgspec.json.encode(request.body))
        FIRECRACKER.check(request.method, request.target, body)


def test_two_drives_never_have_one_id() -> None:
    names = ("a-b", "ab", "a", "a--b", "b-a", "-a")
    assert len({api.id_of(name) for name in names}) == len(names)
