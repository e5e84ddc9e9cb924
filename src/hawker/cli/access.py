"""What the command line says about the node to talk to. Apart from `connect`, which imports a whole HTTP client."""

from dataclasses import dataclass

from hawker.log import Secret


@dataclass(frozen=True, slots=True)
class Access:
    url: str | None = None
    token: Secret | None = None
