"""From an order to a machine's first record: names, addresses, the image pinned to a digest."""

from hawker.api.bodies import CreateMachineRequest
from hawker.app import machine_name
from hawker.config import MachineConfig
from hawker.errors import NoRoom
from hawker.ids import MachineId, OrderId, Version, new_machine_id, new_ulid
from hawker.image.resolve import Resolved
from hawker.machine import State
from hawker.node import Resources
from hawker.worker import leases
from hawker.worker.lifecycle.environment import resources
from hawker.worker.names import new_name
from hawker.worker.parts import Parts
from hawker.worker.records import AppRecord, MachineRecord, Network

LOOPBACK = "::1"
"""The private address of a machine on the host's own network."""


def serves_region(own: str, wanted: str | None) -> None:
    """Raises `NoRoom` when no region of the list (contract 3.11) is this node's."""
    names = [name.strip() for name in (wanted or "any").split(",")]
    if not {own, "any", ""} & set(names):
        raise NoRoom(
            f"could not find a candidate host: no host in region '{wanted}', the nearest is '{own}'",
            scope="region",
            shortfall={"hosts": 1},
            nearest=own,
        )


async def resolve(parts: Parts, config: MachineConfig) -> Resolved:
    """Ask what the reference means now. Raises `BadRequest` when there is no such image, `Unavailable` when its
    registry does not answer and nothing is cached."""
    return await parts.deps.images.resolve(config.image or "")


def new_record(
    parts: Parts, app: AppRecord, order: CreateMachineRequest, image: Resolved, *, caller: str, key: OrderId | None
) -> MachineRecord:
    """The record that an order becomes if it is filled; `key` is the client's name for the order. Raises
    `Unprocessable` for a bad name."""
    clock, settings = parts.deps.clock, parts.deps.settings
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
        image=image,
        network=Network(private_ip=_private_ip(parts, app, machine_id), network_id=app.network_id),
        holds=resources(order.config, settings.machine_disk_mib) if launch else Resources(),
        cordoned=bool(order.skip_service_registration),
        lease=leases.new(clock, caller, "", float(order.lease_ttl)) if order.lease_ttl else None,
        order=key,
        created_at=now,
        updated_at=now,
    )


def _private_ip(parts: Parts, app: AppRecord, machine_id: MachineId) -> str:
    networks = parts.deps.networks
    return LOOPBACK if networks is None else networks.private_ip(app.network_id, machine_id)
