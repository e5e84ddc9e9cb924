"""Bodies about what an organization has, over all its apps."""

from datetime import datetime

from hawker.api.bodies.body import Answer
from hawker.config import Guest
from hawker.machine import State


class MachineOverview(Answer, frozen=True, kw_only=True):
    """The part of a config that a list over many machines shows."""

    image: str | None
    guest: Guest | None = None
    metadata: dict[str, str] | None = None


class OrgMachine(Answer, frozen=True, kw_only=True):
    """`instance_id` is the version, as elsewhere; without a `config` in a summary."""

    id: str
    app_name: str
    name: str
    state: State
    region: str
    version: str
    instance_id: str
    private_ip: str
    created_at: datetime
    updated_at: datetime
    config: MachineOverview | None = None


class OrgMachines(Answer, frozen=True, kw_only=True):
    """One page, by machine id. `error_regions` are those that could not be asked."""

    machines: tuple[OrgMachine, ...]
    next_cursor: str = ""
    last_machine_id: str = ""
    last_updated_at: datetime | None = None
    error_regions: tuple[str, ...]
