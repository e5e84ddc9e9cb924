"""What is ordered. Amounts are those that bind in practice: shared cpus and memory."""

import msgspec


class Order(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`at_s` is when it comes. A machine lives for `lifetime_s` from the moment at which it runs. An app is its image,
    numbered by popularity; `image_mib` is what a host pulls that does not hold it."""

    number: int
    at_s: float
    cpus: int
    memory_mib: int
    lifetime_s: float
    image: int
    image_mib: int
