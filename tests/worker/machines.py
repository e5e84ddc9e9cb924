"""Records of machines as tests of the worker need them."""

from typing import Any

import msgspec

from hawker.ids import AppName, Digest, InstanceId, MachineId, Version
from hawker.image.manifest import Resolved
from hawker.machine import State
from hawker.node import Resources
from hawker.record.machine import MachineRecord, Network, Running
from hawker.sim.node.sim_worker import config_of

IMAGE = Resolved(
    reference="hawker/hello",
    registry="",
    repository="hawker/hello",
    tag="latest",
    digest=Digest("sha256:" + "0" * 64),
    size_bytes=1000,
)
NOW = 1_700_000_000.0


def machine(machine_id: str = "00000000000001", **fields: Any) -> MachineRecord:
    """A started machine of the app `stall`, running the instance `I1` since a minute."""
    record = MachineRecord(
        id=MachineId(machine_id),
        app=AppName("stall"),
        name=f"name-{machine_id}",
        region="local",
        state=State.STARTED,
        version=Version("V1"),
        config=config_of(),
        image=IMAGE,
        network=Network(private_ip="fdaa::2", network_id=1),
        holds=Resources(shared_cpus=1, memory_mib=256, disk_mib=256),
        running=Running(instance_id=InstanceId("I1"), pid=42, started_at=NOW - 60),
        created_at=NOW,
        updated_at=NOW,
    )
    return msgspec.structs.replace(record, **fields)
