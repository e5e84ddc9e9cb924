"""Which fields of a config are understood but not served, in one table. Shrinks as the house grows."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from hawker.config.machine import MachineConfig


@dataclass(frozen=True, slots=True)
class NotServed:
    """A field by its path, `[]` for each item and `{}` for each value. `harmless` values ask for nothing."""

    path: str
    reason: str
    harmless: tuple[object, ...] = ()


NOT_SERVED: tuple[NotServed, ...] = (
    NotServed("mounts[].add_size_percent", "a volume grows by a size in GB: use add_size_gb"),
    NotServed("mounts[].min_add_size_gb", "a volume grows by a size in GB: use add_size_gb"),
    NotServed("volumes[].image", "containers share temporary directories only"),
    NotServed("containers[].files[].image_config", "image configs are not written to files yet"),
    NotServed("containers[].restart.gpu_bid_price", "there is no spot price"),
    NotServed("rootfs.size_gb", "every root filesystem has the node's size"),
    NotServed("cache_drive", "there are no cache drives yet"),
    NotServed("spot", "there is no spot price"),
    NotServed("dns.dns_forward_rules", "no name server of the node's own stands between"),
    NotServed("guest.host_dedication_id", "hosts are not dedicated"),
    NotServed("guest.required_host_features", "hosts declare no features yet"),
    NotServed("restart.gpu_bid_price", "there is no spot price"),
)
"""`services`, `statics` and `standbys` are kept for the edge, which routes by them, and for what starts spares;
`dns.skip_registration`, `disable_machine_autostart` and a check's `kind` only say what routing and DNS shall leave
alone."""


def not_served(config: MachineConfig) -> Iterator[tuple[str, str]]:
    """Path and reason of each field that asks for something this program does not do."""
    for entry in NOT_SERVED:
        for path, value in _values(config, "", entry.path):
            if value not in entry.harmless and _asks(value):
                yield path, entry.reason


def _values(part: object, at: str, path: str) -> Iterator[tuple[str, object]]:
    """Each value that `path` leads to, with where it was found."""
    step, _, rest = path.partition(".")
    field = step.rstrip("[]{}")
    value = getattr(part, field, None)
    found = f"{at}{field}"
    if step.endswith("[]") and isinstance(value, tuple):
        items = [(f"{found}[{index}]", item) for index, item in enumerate(value)]
    elif step.endswith("{}") and isinstance(value, dict):
        items = [(f"{found}.{key}", item) for key, item in value.items()]
    else:
        items = [(found, value)]
    for where, item in items:
        yield from _values(item, f"{where}.", rest) if rest else [(where, item)]


def _asks(value: object) -> bool:
    """Whether a value is more than the nothing that clients send: null, false, zero, empty, or all of it such."""
    if isinstance(value, msgspec.Struct):
        return any(_asks(getattr(value, field)) for field in value.__struct_fields__)
    return bool(value)
