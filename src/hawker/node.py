"""What a node has and what its machines hold of it. Values and the pure arithmetic of admission."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from hawker.errors import CannotStart
from hawker.gpu import Gpu


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """Amounts of what a node sells. Shared and performance cpus are counted apart: only shared ones may be oversold."""

    shared_cpus: int = 0
    """The virtual cpus, shared with other machines."""
    performance_cpus: int = 0
    """Whole cpus of the host."""
    memory_mib: int = 0
    """The memory in MiB."""
    disk_mib: int = 0
    """The MiB of volumes and root filesystems."""

    def plus(self, other: "Resources") -> "Resources":
        return Resources(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})

    def minus(self, other: "Resources") -> "Resources":
        return Resources(**{name: getattr(self, name) - getattr(other, name) for name in self.__struct_fields__})

    def times(self, number: int) -> "Resources":
        return Resources(**{name: getattr(self, name) * number for name in self.__struct_fields__})


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The host's totals. `shared_ratio` is how many shared cpus are sold per cpu not sold as performance. GPUs are told
    apart: the machines' records say which machine has which."""

    cpus: int
    """Whole cpus, 0 or more."""
    memory_mib: int
    """The MiB of memory that are for sale."""
    disk_mib: int
    """The MiB of disk that are for sale."""
    shared_ratio: float = 8.0
    gpus: tuple[Gpu, ...] = ()


def shortfall(capacity: Capacity, used: Resources, asked: Resources) -> dict[str, int]:
    """The amounts that are missing to fill `asked`, per resource; empty when it fits.

    Performance cpus are whole host cpus, never oversold; shared cpus share what those leave over, so selling either
    kind may not break a promise made to the other."""
    after = used.plus(asked)
    missing: dict[str, int] = {}
    if asked.shared_cpus or asked.performance_cpus:
        left = capacity.cpus - after.performance_cpus
        if left < 0:
            missing["cpus"] = -left
        elif after.shared_cpus > (sellable := int(left * capacity.shared_ratio)):
            missing["cpus"] = after.shared_cpus - sellable
    if asked.memory_mib and after.memory_mib > capacity.memory_mib:
        missing["memory_mb"] = after.memory_mib - capacity.memory_mib
    if asked.disk_mib and after.disk_mib > capacity.disk_mib:
        missing["disk_mb"] = after.disk_mib - capacity.disk_mib
    return missing


_UNITS = {"memory_mb": "MiB of memory", "disk_mb": "MiB of disk", "cpus": "cpus"}


def shortfall_text(missing: Mapping[str, int]) -> str:
    """A shortfall in words: "2 cpus and 512 MiB of memory". Kinds of GPUs and the like go by their own names."""
    told = [f"{amount} {_UNITS.get(name, name)}" for name, amount in missing.items()]
    return " and ".join(filter(None, (", ".join(told[:-1]), *told[-1:])))


def how_many(capacity: Capacity, used: Resources, asked: Resources, *, most: int) -> int:
    """The number of times that `asked` fits beside `used`, up to `most`."""
    fits, above = 0, most + 1
    while above - fits > 1:
        middle = (fits + above) // 2
        if shortfall(capacity, used, asked.times(middle)):
            above = middle
        else:
            fits = middle
    return fits


# A node's labels, as its settings have them: what orders may ask for. Pure.

MAX_LABELS = 64
_KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,62}[A-Za-z0-9])?")
_MAX_VALUE = 256


def labels_of(texts: Iterable[str]) -> dict[str, str]:
    """The labels of texts KEY=VALUE. Raises `CannotStart` naming the text that is no label."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not _KEY.fullmatch(key) or len(value) > _MAX_VALUE or not _fits(value):
            raise CannotStart(f"label {text!r:.80} is not KEY=VALUE, such as disk=ssd")
        if key in found:
            raise CannotStart(f"label {key} is given twice")
        found[key] = value
    if len(found) > MAX_LABELS:
        raise CannotStart(f"a node has at most {MAX_LABELS} labels, not {len(found)}")
    return found


def _fits(value: str) -> bool:
    """An order names several labels with commas between them."""
    return value.isprintable() and "," not in value
