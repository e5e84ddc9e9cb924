"""What refuses calls that come too often, as the server asks it. Who counts them, and how, is decided elsewhere."""

from collections.abc import Mapping
from typing import Protocol

from hawker.api.route import AnyRoute


class Limiter(Protocol):
    """Asked once for each call, after its token was found good and before anything is read or done."""

    def spend(self, route: AnyRoute, params: Mapping[str, str]) -> None:
        """Raises `RateLimited`."""


class Unlimited:
    """Keeps `Limiter`, and lets everything pass."""

    def spend(self, route: AnyRoute, params: Mapping[str, str]) -> None:
        return None
