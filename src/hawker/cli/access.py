"""What the options `--url` and `--token` say of the way to a node. Light, since `--help` imports it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Access:
    url: str | None = None
    token: str | None = field(default=None, repr=False)
