"""A run as a value that programs read."""

import msgspec

from bench.schedulers.notary import Breach


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Times are virtual, in milliseconds, from the moment at which an order came: until its placement was acknowledged,
    and until its machine ran. `looked` and `asked` are hosts per order; `background` are messages
    per order that were not sent for one. `avoidable` are refusals while some host had room."""

    policy: str
    hosts: int
    orders: int
    placed: int
    refused: dict[str, int]
    avoidable: int
    place_p50_ms: float | None
    place_p99_ms: float | None
    start_p50_ms: float | None
    start_p99_ms: float | None
    busy: float
    variation: float
    overworked: float | None
    pulled_gib: float
    looked: float
    asked: float
    background: float
    conflicts: int
    failures: int
    lost_with_hosts: int
    virtual_s: float
    breaches: tuple[Breach, ...]
