"""The shape of a machine's size."""

from typing import Literal

from hawker.config.part import Part


class Guest(Part, frozen=True, kw_only=True):
    cpu_kind: Literal["shared", "performance"] | None = None
    cpus: int | None = None
    memory_mb: int | None = None
    max_memory_mb: int | None = None
    gpu_kind: str | None = None
    gpus: int | None = None
    kernel_args: tuple[str, ...] | None = None
    host_dedication_id: str | None = None
    persist_rootfs: int | str | None = None
    required_host_features: tuple[str, ...] | None = None


class Spot(Part, frozen=True, kw_only=True):
    max_price_fraction: float | None = None
