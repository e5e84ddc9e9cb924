"""What a client says of where its request is to go: to one machine of the app, or to a region. Pure. Fields and meaning
are those of superfly/docs (networking/dynamic-request-routing).
"""

from collections.abc import Iterable

from hawker.edge.routes import Door
from hawker.ids import AppName, MachineId
from hawker.value_object import ValueObject

FORCE_INSTANCE, PREFER_INSTANCE = b"fly-force-instance-id", b"fly-prefer-instance-id"
FORCE_REGION = b"fly-force-region"
UNAVAILABLE = b"fly-preferred-instance-unavailable"
_ANYWHERE = "any"
_MAX_CHARS = 64


class Steering(ValueObject, frozen=True):
    """`force`: this machine or none. `prefer`: this one if it can take the request now. `regions`: none but machines of
    these; empty for all. `apart`: not to these machines."""

    force: MachineId | None = None
    prefer: MachineId | None = None
    regions: frozenset[str] = frozenset()
    apart: frozenset[MachineId] = frozenset()

    def allows_region(self, region: str) -> bool:
        return not self.regions or not self.regions.isdisjoint((region, _ANYWHERE))


NOWHERE_SAID = Steering()


def steering_of(fields: Iterable[tuple[bytes, bytes]]) -> Steering:
    """Of a request's fields, whose names are in lower case; of several of a kind the first counts."""
    found: dict[bytes, str] = {}
    for name, value in fields:
        if name in (FORCE_INSTANCE, PREFER_INSTANCE, FORCE_REGION):
            found.setdefault(name, value.decode("latin-1").strip()[:_MAX_CHARS])
    if not found:
        return NOWHERE_SAID
    force, prefer = found.get(FORCE_INSTANCE), found.get(PREFER_INSTANCE)
    regions = found.get(FORCE_REGION, "").lower().split(",")
    return Steering(
        force=MachineId(force) if force else None,
        prefer=MachineId(prefer) if prefer else None,
        regions=frozenset(filter(None, (each.strip() for each in regions))),
    )


class Aim(ValueObject, frozen=True):
    """Whom a request is for: an app's machines at a door. `inside`: those that a replay reaches, which have a service
    for the door's port, or one alone that speaks HTTP; it need not be open to anybody else."""

    door: Door
    app: AppName
    steering: Steering = NOWHERE_SAID
    inside: bool = False

    @property
    def queue(self) -> Door:
        """Who waits for the same waits in one line."""
        place = self.steering.force or ("" if self.inside else self.door.address)
        return Door(place, self.door.port, self.door.udp)
