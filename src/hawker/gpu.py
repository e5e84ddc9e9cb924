"""GPUs as a node has them: whole devices, each of a kind and at a PCI address. Values and pure choice.

A kind is a name that the operator gives: machines ask for so many of a kind, and get devices by their addresses.
"""

import re
from collections.abc import Collection, Iterable, Sequence

import msgspec

MOST = 16
"""The most GPUs that one machine may ask for."""

_KIND = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    """The operator's name for the kind of device, `a10` say: orders name it."""
    address: str
    """The device's address on the host's PCI bus, `0000:65:00.0` say."""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """`count` devices of a kind."""

    kind: str
    """The name of the kind, `a10` say."""
    count: int


def is_kind(text: str) -> bool:
    return _KIND.fullmatch(text) is not None


def parse_gpus(texts: Iterable[str]) -> tuple[Gpu, ...]:
    """The GPUs of texts "KIND=PCI-ADDRESS". Raises `ValueError` saying what is wrong."""
    found: dict[str, Gpu] = {}
    for text in texts:
        kind, _, address = text.partition("=")
        if not is_kind(kind) or not _ADDRESS.fullmatch(address):
            raise ValueError(f"{text!r} is not KIND=PCI-ADDRESS such as a100-pcie-40gb=0000:65:00.0, in small letters")
        if address in found:
            raise ValueError(f"{text!r} names a device that {found[address].kind}={address} names too")
        found[address] = Gpu(kind=kind, address=address)
    return tuple(found.values())


def choose(
    demand: Demand, devices: Sequence[Gpu], taken: Collection[str], held: Sequence[Gpu] = ()
) -> tuple[Gpu, ...] | None:
    """Devices that nobody has; first those that the asker holds already, in the order in which it holds them. None when
    there are too few. `taken` are the addresses that others hold."""
    able = [gpu for gpu in devices if gpu.kind == demand.kind and gpu.address not in taken]
    own = [gpu for gpu in held if gpu in able]
    chosen = [*own, *(gpu for gpu in able if gpu not in own)][: demand.count]
    return tuple(chosen) if len(chosen) == demand.count else None


def how_often(demand: Demand, devices: Iterable[Gpu], taken: Collection[str]) -> int:
    """The number of machines for which there are enough free devices for `demand`. `taken` are the addresses that
    machines hold."""
    return sum(gpu.kind == demand.kind and gpu.address not in taken for gpu in devices) // demand.count


def assigned(demand: Demand | None, held: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Those of the devices that a machine holds which are for its `demand`: the first of their kind, which stay the
    first as long as it holds them (`keep`)."""
    if demand is None:
        return ()
    return tuple(gpu for gpu in held if gpu.kind == demand.kind)[: demand.count]


def keep(chosen: Sequence[Gpu], held: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """All devices of both, `chosen` first: the machine holds both until an instance with the ones makes room for one
    with the others."""
    return (*chosen, *(gpu for gpu in held if gpu not in chosen))
