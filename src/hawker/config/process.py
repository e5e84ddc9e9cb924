"""The shape of what runs in a machine: commands, files, and what follows their end."""

from typing import ClassVar, Literal

from hawker.config.part import Part, TimedPart


class EnvFrom(Part, frozen=True, kw_only=True):
    env_var: str | None = None
    field_ref: Literal["id", "version", "app_name", "private_ip", "region", "image"] | None = None


class MachineSecret(Part, frozen=True, kw_only=True):
    env_var: str | None = None
    name: str | None = None


class Init(Part, frozen=True, kw_only=True):
    """Replaces parts of the image's command: `exec` all of it, `entrypoint` and `cmd` each their own part."""

    exec: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    tty: bool | None = None
    swap_size_mb: int | None = None
    kernel_args: tuple[str, ...] | None = None


class MachineProcess(Part, frozen=True, kw_only=True):
    exec: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    env: dict[str, str] | None = None
    user: str | None = None
    secrets: tuple[MachineSecret, ...] | None = None
    ignore_app_secrets: bool | None = None
    env_from: tuple[EnvFrom, ...] | None = None


class File(Part, frozen=True, kw_only=True):
    """Written before the first process starts. `raw_value` is base64, `mode` the bits of chmod(2)."""

    guest_path: str | None = None
    raw_value: str | None = None
    secret_name: str | None = None
    image_config: str | None = None
    mode: int | None = None


class MachineRestart(Part, frozen=True, kw_only=True):
    policy: Literal["no", "always", "on-failure", "spot-price"] | None = None
    max_retries: int | None = None
    gpu_bid_price: float | None = None


class StopConfig(TimedPart, frozen=True, kw_only=True):
    durations: ClassVar[tuple[str, ...]] = ("timeout",)

    signal: str | None = None
    timeout: str | int | None = None
