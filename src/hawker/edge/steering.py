"""What a client says of where its request is to go: to one machine of the app, or to a region. Pure. Fields and meaning
are those of superfly/docs (networking/dynamic-request-routing).
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from hawker.edge.routes import Door, Routes, ServiceTarget
from hawker.ids import AppName, MachineId
from hawker.region import means
from hawker.value_object import ValueObject

FORCE_INSTANCE, PREFER_INSTANCE = b"fly-force-instance-id", b"fly-prefer-instance-id"
FORCE_REGION, PREFER_REGION = b"fly-force-region", b"fly-prefer-region"
_STEERING = frozenset({FORCE_INSTANCE, PREFER_INSTANCE, FORCE_REGION, PREFER_REGION})
UNAVAILABLE = b"fly-preferred-instance-unavailable"
_MAX_CHARS = 64
_MAX_REGIONS = 16


class Steering(ValueObject, frozen=True):
    """The machines to which a client steers its request. `force`: this machine or none. `prefer`: this one if it can
    take the request now. `regions`: none but machines of these, in this order; empty for all. `preferred`: these
    regions first. Both are regions and aliases of such, as in orders. `apart`: not to these machines."""

    force: MachineId | None = None
    prefer: MachineId | None = None
    regions: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    apart: frozenset[MachineId] = frozenset()

    def allows_region(self, region: str) -> bool:
        return not self.regions or any(means(word, region) for word in self.regions)

    def without(self, *machines: MachineId) -> "Steering":
        return replace(self, apart=self.apart.union(machines))


NOWHERE_SAID = Steering()


def steering_of(fields: Iterable[tuple[bytes, bytes]]) -> Steering:
    """The steering in a request's fields, whose names are in lower case; of several fields of a kind the first
    counts."""
    found: dict[bytes, str] = {}
    for name, value in fields:
        if name in _STEERING:
            found.setdefault(name, value.decode("latin-1").strip()[:_MAX_CHARS])
    if not found:
        return NOWHERE_SAID
    force, prefer = found.get(FORCE_INSTANCE), found.get(PREFER_INSTANCE)
    return Steering(
        force=MachineId(force) if force else None,
        prefer=MachineId(prefer) if prefer else None,
        regions=_listed(found.get(FORCE_REGION, "")),
        preferred=_listed(found.get(PREFER_REGION, "")),
    )


def _listed(regions: str) -> tuple[str, ...]:
    return tuple(filter(None, (each.strip() for each in regions.lower().split(",", _MAX_REGIONS)[:_MAX_REGIONS])))


class Aim(ValueObject, frozen=True):
    """The machines that a request is for: an app's machines at a door. `inside`: those that a replay reaches, which
    have a service for the door's port, or one alone that speaks HTTP; it need not be open to anybody else."""

    door: Door
    app: AppName
    steering: Steering = NOWHERE_SAID
    inside: bool = False

    @property
    def queue(self) -> Door:
        """The door whose queue the request waits in: requests that wait for the same machines wait in one queue."""
        if not self.steering.force and not self.inside:
            return self.door
        return Door(self.steering.force or "", self.door.port, self.door.udp)


def meant(routes: Routes, aim: Aim) -> list[ServiceTarget]:
    """The targets that may be chosen, in whatever state they are."""
    there, steering = routes.apps(aim.door).get(aim.app, {}), aim.steering
    if aim.inside:
        there = routes.inside(aim.app, aim.door.port)
    if steering is NOWHERE_SAID:
        return list(there.values())
    forced = None if steering.force is None else there.get(steering.force)
    if forced is not None and not forced.machine.region:
        return [forced]
    others = [each for each in there.values() if each.machine.id not in steering.apart]
    if steering.force is not None:  # another region may have it
        others = [each for each in others if each.machine.region]
    if not steering.regions:
        return others
    return [each for each in others if steering.allows_region(each.machine.region or routes.region)]


def tiers(targets: Sequence[ServiceTarget], here: str, steering: Steering) -> list[list[ServiceTarget]]:
    """The targets to ask, region by region: in the order that the client says, else this region and then the nearest;
    the same for regions that one alias stands for. A region is asked after another only where no machine of that one
    can take the request, or be started for it."""
    if len(targets) == 1 or not any(each.machine.region for each in targets):
        return [list(targets)] if targets else []
    wished = (*steering.regions, *steering.preferred)
    found: dict[tuple[int, bool, int, str], list[ServiceTarget]] = {}
    for each in targets:
        away, name = each.machine.region, each.machine.region or here
        place = next((number for number, word in enumerate(wished) if means(word, name)), len(wished))
        found.setdefault((place, bool(away), each.machine.away_ms if away else 0, name), []).append(each)
    return [found[order] for order in sorted(found)]
