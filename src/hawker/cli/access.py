"""What the options `--url` and `--token` say of the way to a node. Light, since `--help` imports it."""

from dataclasses import dataclass

from hawker.log import Secret


@dataclass(frozen=True, slots=True)
class Access:
    url: str | None = None
    token: Secret | None = None
