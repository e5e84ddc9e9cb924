"""The GPUs of an instance: made ready on the host just before it is begun."""

from collections.abc import Sequence
from typing import Protocol

from hawker.config.gpu_rules import demand_of
from hawker.gpu import assigned
from hawker.record.gpu_claim import claimed_by
from hawker.record.machine import MachineRecord
from hawker.runtime.driver import ALIVE, Driver


class Devices(Protocol):
    """Devices of the host by their PCI addresses."""

    async def take(self, addresses: Sequence[str]) -> None:
        """Make these ready for one machine, as its own and fresh; only while nobody has them open. Idempotent. Raises
        `Unavailable` with what to do."""


def gpus_of(record: MachineRecord) -> tuple[str, ...]:
    """The addresses of an instance's devices. Pure: the same for a launch that is repeated."""
    return tuple(gpu.address for gpu in assigned(demand_of(record.config), claimed_by(record)))


async def take_gpus(devices: Devices | None, driver: Driver, record: MachineRecord) -> None:
    """Before an instance is begun; one that runs already, as after a daemon's death, keeps its devices as they are."""
    addresses = gpus_of(record)
    if not addresses or (await driver.inspect(record.id)).phase in ALIVE:
        return
    assert devices is not None, "a node whose machines have GPUs has devices"
    await devices.take(addresses)
