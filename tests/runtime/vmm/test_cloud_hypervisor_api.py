"""What is said to Cloud Hypervisor is what its API takes, whatever the machine."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hawker.ids import MachineId
from hawker.runtime.spec import GuestLink
from hawker.runtime.vmm import cloud_hypervisor_api as api
from hawker.runtime.vmm.contract import Vm, VmDrive
from tests.runtime.vmm.test_firecracker_api import drives, links
from tests.vmm.cloud_hypervisor_document import CLOUD_HYPERVISOR

gpus = st.lists(st.from_regex(r"0000:[0-9a-f]{2}:00\.0", fullmatch=True), max_size=4)


@given(st.lists(drives, max_size=6), links, gpus, st.integers(1, 254), st.integers(1, 1 << 20), st.text())
def test_every_request_is_one_that_the_description_has(
    drives: list[VmDrive], link: GuestLink | None, gpus: list[str], cpus: int, memory_mib: int, text: str
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
        gpus=tuple(gpus),
    )
    fixed = (api.PING, api.INFO, api.BOOT, api.PAUSE, api.RESUME, api.SHUTDOWN)
    changes = (api.snapshot("/s"), api.restore("/s"), api.inflate(1), api.resize_disk("a", 1 << 40))
    for request in (*api.boot(vm, "/cell/vmm/vsock.sock"), *fixed, *changes):
        body = None if request.body is None else msgspec.json.decode(msgspec.json.encode(request.body))
        CLOUD_HYPERVISOR.check(request.method, request.target, body)
