"""The pages on the two VMMs say what is sent, in the order in which it is."""

import re
from itertools import groupby
from pathlib import Path

import pytest

from hawker.clock import SystemClock
from hawker.runtime.vmm.cloud_hypervisor import CloudHypervisor
from hawker.runtime.vmm.contract import Restored, Vmm
from hawker.runtime.vmm.firecracker import Firecracker
from tests.vmm.guests import NoGuest
from tests.vmm.hosts import LINK, MIB, host
from tests.vmm.played_cloud_hypervisor import PlayedCloudHypervisor
from tests.vmm.played_firecracker import PlayedFirecracker
from tests.vmm.vmm_server import PlayedVmm

pytestmark = pytest.mark.anyio
DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| [a-z ]+ \| `([A-Z]+ [^`]+)` \|", re.MULTILINE)


def sent_by(page: str) -> list[str]:
    return ROW.findall((DOCS / page).read_text())


async def life(vmm: Vmm, played: list[PlayedVmm], place: Path) -> list[str]:
    """Everything that a driver ever says; what it says twice in a row, once."""
    with host(place) as here:
        vm, directory = here.vm(here.drive("ledger"), here.drive("layer"), link=LINK), here.directory()
        with here.served(played[0]):
            await vmm.boot(vm, here.run, None)
            await vmm.save(vm, here.run, directory)
            await vmm.end(here.run)
        with here.served(played[1]):
            await vmm.boot(vm, here.run, Restored(directory, ""))
            await vmm.proceed(here.run)
            await vmm.inflate(here.run, 64)
            await vmm.enlarge(here.run, "layer", MIB)
        return [operation for operation, _ in groupby(here.asked)]


async def test_the_page_on_firecracker(tmp_path: Path) -> None:
    played: list[PlayedVmm] = [PlayedFirecracker(NoGuest()), PlayedFirecracker(NoGuest())]
    assert await life(Firecracker(SystemClock(), lambda: ""), played, tmp_path) == sent_by("firecracker.md")


async def test_the_page_on_cloud_hypervisor(tmp_path: Path) -> None:
    played: list[PlayedVmm] = [PlayedCloudHypervisor(NoGuest()), PlayedCloudHypervisor(NoGuest())]
    vmm = CloudHypervisor(SystemClock(), lambda: "")
    assert await life(vmm, played, tmp_path) == sent_by("cloud-hypervisor.md")
