"""What a config's GPUs must satisfy. Pure; yields complaints that open with the field's path."""

from collections.abc import Iterator
from typing import Protocol

from hawker.config.machine import MachineConfig
from hawker.gpu import MOST, Demand, is_kind


class Attached(Protocol):
    """What the driver that will run the machine can do about it (`runtime.driver.Features` is one)."""

    @property
    def driver(self) -> str: ...
    @property
    def gpus(self) -> bool: ...


def demand_of(config: MachineConfig) -> Demand | None:
    """None: no GPU. A kind without a number is one device."""
    given = config.guest
    if given is None or not given.gpu_kind:
        return None
    return Demand(kind=given.gpu_kind, count=1 if given.gpus is None else given.gpus)


def gpus(config: MachineConfig) -> Iterator[str]:
    given, demand = config.guest, demand_of(config)
    if given is None:
        return
    if demand is None:
        if given.gpus:
            yield "guest.gpus says how many, but guest.gpu_kind does not say of what kind"
        return
    if not is_kind(demand.kind):
        yield f"guest.gpu_kind must be small letters, digits and dashes, not {demand.kind!r:.80}"
    if not 1 <= demand.count <= MOST:
        yield f"guest.gpus must be between 1 and {MOST}, not {demand.count}"
    if given.max_memory_mb:
        yield "guest.max_memory_mb and guest.gpu_kind exclude each other: devices write to all memory of their machine"


def unserved(config: MachineConfig, served: Attached) -> Iterator[str]:
    if demand_of(config) is not None and not served.gpus:
        yield (
            f"guest.gpu_kind is not served by this node's driver ({served.driver}): its machines have no devices of "
            "the host"
        )
