"""A stand-in for a virtual machine: a namespace whose `eth0` is joined to a machine's tap, frame by frame, by a program
that runs as the user that the tap is for and has no privileges. In the namespace everybody is root and sends what they
like, as in a guest.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from hawker.host import links, netns
from hawker.host.address import machine_mac
from hawker.host.machine_link import TAP, NetworkPlan, addressed, join, open_taps, prepare_machine
from hawker.host.netlink import NetlinkSocket
from hawker.host.network import NodeNetwork
from hawker.host.vmm_user import user_of

T = TypeVar("T")

OFFLOADS = 0x7  # TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6
_TUNSETOFFLOAD = 0x400454D0
_RELAY = """
import fcntl
import os
import sys
from select import select
from hawker.host.machine_link import join, open_taps
outer = open_taps()
inner, user, offload = map(int, sys.argv[1:4])
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
join(outer, sys.argv[4], header=bool(offload))
fcntl.ioctl(outer, 0x400454D0, offload)
print("attached", flush=True)
while True:
    for ready in select([inner, outer], [], [])[0]:
        os.write(outer if ready == inner else inner, os.read(ready, 1 << 17))
"""


@dataclass(frozen=True, slots=True)
class Guest:
    """What runs `inside` sees what a guest's user would."""

    plan: NetworkPlan
    path: Path

    async def inside(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(netns.inside, self.path, work)


@contextmanager
def guest(network: NodeNetwork, plan: NetworkPlan, directory: Path, offload: int = 0) -> Iterator[Guest]:
    """In the machine's namespace, which is there already. With `offload` (`OFFLOADS`) both sides leave checksums and
    segments to each other, as a paravirtual network card does."""
    path = directory / f"guest-{plan.machine_id}"
    opened: list[int] = []
    netns.create(path, lambda _: opened.append(_boot(plan, offload)))
    relay = netns.inside(network.path_of(plan.machine_id), partial(_relay, opened[0], plan, offload))
    os.close(opened[0])
    try:
        assert relay.stdout is not None and relay.stdout.readline() == b"attached\n"
        yield Guest(plan, path)
    finally:
        relay.kill()
        relay.wait()
        assert relay.stdout is not None
        relay.stdout.close()
        netns.delete(path)


def _boot(plan: NetworkPlan, offload: int) -> int:
    """As the pilot does it; the far end of the guest's own `eth0`."""
    prepare_machine()
    tap = open_taps()
    join(tap, "eth0", header=bool(offload))
    fcntl.ioctl(tap, _TUNSETOFFLOAD, offload)
    index = links.index_of("eth0")
    assert index is not None
    with NetlinkSocket() as here:
        here.apply([links.set_mac(index, machine_mac(plan.machine_id)), *addressed(plan, index)])
    return tap


def _relay(inner: int, plan: NetworkPlan, offload: int) -> "subprocess.Popen[bytes]":
    os.set_inheritable(inner, True)
    return subprocess.Popen(
        [sys.executable, "-c", _RELAY, str(inner), str(user_of(plan.machine_id)), str(offload), TAP],
        pass_fds=[inner],
        stdout=subprocess.PIPE,
    )
