"""From an order to a machine's first record: names, addresses, the image pinned to a digest."""

from hawker.api.contract.machine import CreateMachineRequest
from hawker.app import machine_name
from hawker.errors import NoRoom
from hawker.ids import MachineId, OrderId, Version, new_machine_id, new_ulid
from hawker.machine import State
from hawker.node import Resources
from hawker.record.app import AppRecord
from hawker.record.machine import MachineRecord, Network
from hawker.region import accepts
from hawker.worker import leases
from hawker.worker.assembly import AssembledWorker
from hawker.worker.capacity import room_for
from hawker.worker.images import Images
from hawker.worker.names import new_name

LOOPBACK = "::1"
"""The private address of a machine on the host's own network."""


def serves_region(own: str, wanted: str | None) -> None:
    """Raises `NoRoom` when no region of the list (contract 3.11) is this node's."""
    if not accepts(wanted, own):
        raise NoRoom(
            f"could not find a candidate host: no host in region '{wanted}', the nearest is '{own}'",
            scope="region",
            shortfall={"hosts": 1},
            nearest=own,
        )


def new_record(
    parts: AssembledWorker,
    app: AppRecord,
    order: CreateMachineRequest,
    images: Images,
    *,
    caller: str,
    key: OrderId | None,
) -> MachineRecord:
    """The record that an order becomes if it is filled; `key` is the client's name for the order. Raises
    `Unprocessable` for a bad name."""
    clock, overhead_mib = parts.deps.clock, parts.deps.driver.features.overhead_mib
    machine_id, now = new_machine_id(clock), clock.now()
    launch = not order.skip_launch
    return MachineRecord(
        id=machine_id,
        app=app.name,
        name=machine_name(order.name) if order.name else new_name(clock),
        region=parts.node.region,
        state=State.CREATED,
        version=Version(new_ulid(clock)),
        config=order.config,
        image=images.shown,
        container_images=images.of_containers,
        network=Network(private_ip=_private_ip(parts, app, machine_id), network_id=app.network_id),
        holds=room_for(parts.deps.settings, overhead_mib, order.config) if launch else Resources(),
        cordoned=bool(order.skip_service_registration),
        lease=leases.new(clock, caller, "", float(order.lease_ttl)) if order.lease_ttl else None,
        order=key,
        created_at=now,
        updated_at=now,
    )


def _private_ip(parts: AssembledWorker, app: AppRecord, machine_id: MachineId) -> str:
    networks = parts.deps.networks
    return LOOPBACK if networks is None else networks.private_ip(app.network_id, machine_id)
