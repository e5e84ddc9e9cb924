"""What lists show of a host that does not answer: the catalog's rows of its machines and volumes, as API bodies that
say so. Rows are what the host published last; what the catalog does not have (configs, events, blocks) is left out.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from hawker.api.contract.body import instant
from hawker.api.contract.machine import ImageRef, ListMachinesQuery, Machine
from hawker.api.contract.volume import Volume
from hawker.api.directory import KnownMachine, KnownVolume, Node
from hawker.ids import AppName, NodeId
from hawker.machine import State

T = TypeVar("T")

UNREACHABLE = "unreachable"
ALL_ROWS = -1
"""As a limit: the whole list."""


class SilentRows(Protocol):
    """Rows of one node and app, by id, beyond `after`, at most `limit` or `ALL_ROWS`: of this region's nodes only."""

    def machines_at(self, node: NodeId, app: AppName, after: str, limit: int) -> Sequence[KnownMachine]: ...

    def volumes_at(self, node: NodeId, app: AppName, after: str, limit: int) -> Sequence[KnownVolume]: ...


def machine_of(row: KnownMachine, host: Node) -> Machine | None:
    """None for one in a state that this version does not know."""
    try:
        state = State(row.state)
    except ValueError:
        return None
    return Machine(
        id=row.id,
        name=row.name,
        state=state,
        region=host.region,
        image_ref=ImageRef(registry="", repository="", tag="", digest=row.image),
        instance_id=row.version,
        version=row.version,
        private_ip=row.private_ip,
        created_at=instant(row.created_at),
        updated_at=instant(row.updated_at),
        host_status=UNREACHABLE,
        host=host.id,
        cordoned=row.cordoned,
    )


def volume_of(row: KnownVolume, host: Node) -> Volume:
    """Its host is its zone, as of every volume; when it was made is not known."""
    return Volume(
        id=row.id,
        name=row.name,
        state=row.state,
        size_gb=row.size_gb,
        region=host.region,
        zone=host.id,
        encrypted=False,
        attached_machine_id=row.machine or None,
        attached_alloc_id=row.machine or None,
        created_at=instant(0),
        fstype="",
        snapshot_retention=0,
        auto_backup_enabled=False,
        host_status=UNREACHABLE,
        type="local",
    )


def selects(query: ListMachinesQuery) -> Callable[[KnownMachine], bool]:
    """What a worker would select of its own."""

    def selected(row: KnownMachine) -> bool:
        right_state = not query.state or row.state in query.state
        return right_state and all(row.metadata.get(key) == value for key, value in query.metadata.items())

    return selected
