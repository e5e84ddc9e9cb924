"""What a node stores of organizations: what each may have and has (quotas), and who it is at a registry."""

import msgspec

from hawker.store.contract import Bucket


class LoginRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An organization's login at a registry. `sealed` is the password. One that is `gone` was given up: it is kept, so
    that a node that missed it learns of it. `realm` is a host that may have the password too, as token server. Of a
    fleet's records the newest counts; `at` is Unix seconds, `by` who made it."""

    org: str  # slug of the organization
    registry: str  # host name of the registry, with its port where one was named
    username: str  # user name at the registry; empty where the login is gone
    sealed: bytes
    realm: str = ""
    at: float
    by: str
    gone: bool = False


REGISTRY_LOGINS = Bucket("registry_logins", LoginRecord)  # org/registry


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody has. Machines count from their order until they are gone, running or not, each with the cpus and
    the memory (MiB) that its config asks for. `disk_mb` (MiB) has their root filesystems and logs, volumes, snapshots
    and images."""

    machines: int = 0  # how many machines, 0 or more
    cpus: int = 0  # how many whole cpus of all machines, shared and dedicated alike, 0 or more
    memory_mb: int = 0  # memory of all machines, in MiB, 0 or more
    disk_mb: int = 0
    volumes: int = 0  # how many volumes, 0 or more
    snapshots: int = 0  # how many snapshots, 0 or more
    addresses: int = 0  # how many addresses of apps, 0 or more

    def plus(self, other: "Amount") -> "Amount":
        return Amount(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})

    def minus(self, other: "Amount") -> "Amount":
        return Amount(**{name: getattr(self, name) - getattr(other, name) for name in self.__struct_fields__})


class QuotaRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The most that an organization or app may have of each resource; None: as much as there is."""

    machines: int | None = None  # the most machines, 0 or more; an order beyond it is refused
    cpus: int | None = None  # the most cpus of all machines together, 0 or more
    memory_mb: int | None = None  # the most memory of all machines together, in MiB, 0 or more
    disk_mb: int | None = None  # the most disk space, in MiB, 0 or more, of all that `Amount.disk_mb` counts
    volumes: int | None = None  # the most volumes, 0 or more
    snapshots: int | None = None  # the most snapshots, 0 or more
    addresses: int | None = None  # the most addresses, 0 or more

    def over(self, has: Amount, more: Amount) -> dict[str, int]:
        """By how much each resource would be over its limit with `more` of it; empty when all of it may be. What is
        not asked for is not refused, also when there is too much of it already."""
        found: dict[str, int] = {}
        for name in self.__struct_fields__:
            most, asked = getattr(self, name), getattr(more, name)
            if most is not None and asked > 0 and getattr(has, name) + asked > most:
                found[name] = getattr(has, name) + asked - most
        return found


class QuotaRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`subject` is org/NAME, app/NAME, or org/* for every organization without one of its own but the operator's. The
    newest of a fleet counts; without limits it stands for none. `at` is Unix seconds, `by` who set it."""

    subject: str
    limits: QuotaRule
    at: float
    by: str


QUOTAS = Bucket("quotas", QuotaRecord)  # subject
