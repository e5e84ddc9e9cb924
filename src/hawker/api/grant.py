"""What a caller may do, as the server and the handlers ask it. Who grants what is decided elsewhere."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from hawker.permission import Attempt


class Grant(Protocol):
    """What one call may do. The grant knows where the caller is, when it is and which org an app belongs to; who asks
    says the rest of the attempt."""

    @property
    def name(self) -> str:
        """Whom the caller's token stands for."""

    @property
    def root(self) -> bool:
        """Whether the caller holds the root token itself, and not one that was made from it."""

    @property
    def token_ids(self) -> tuple[str, ...]:
        """The first id of the token's chain, which none of its holders chose, and then the ids of the tokens that were
        shown; empty for the root token and for a node's own calls."""

    def check(self, attempt: Attempt) -> None:
        """Raises `Forbidden`."""

    def permits(self, attempt: Attempt) -> bool: ...


ROOT = "root"
"""The name of the root token itself."""


class Everything:
    """The grant of a caller that needs no token: within the process, or on a path for everybody. Without `root` it is
    a node's, which calls for others and may not become more than they are: `token_ids` are those of their tokens."""

    def __init__(self, name: str = "", *, root: bool = True, token_ids: tuple[str, ...] = ()) -> None:
        self.name = name
        self.root = root
        self.token_ids = token_ids

    def check(self, attempt: Attempt) -> None:
        return None

    def permits(self, attempt: Attempt) -> bool:
        return True


def share_key(grant: Grant) -> str:
    """The key of the caller's shares and limits: no name, since the holder of a token gives it any."""
    return f"token {grant.token_ids[0]}" if grant.token_ids else grant.name


Authenticate: TypeAlias = Callable[[str | None, str], Awaitable[Grant]]
"""From the Authorization header and the caller's address. Raises `Unauthorized`."""
