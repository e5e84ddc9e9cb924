"""Who may call: the node's root token, made at first boot, compared in constant time."""

import hmac
import os
from pathlib import Path

from hawker.clock import Clock
from hawker.errors import CannotStart, Unauthorized
from hawker.log import Secret

_SCHEMES = ("Bearer ", "FlyV1 ")


def load_or_create_token(path: Path, clock: Clock) -> Secret:
    """The token in `path`; at first boot a new one of 256 bits, written with mode 0600 and synced before use."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _load(path)
    token = f"hwk_{clock.token_bytes(32).hex()}"
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{token}\n")
        file.flush()
        os.fsync(file.fileno())
    return Secret(token)


def _load(path: Path) -> Secret:
    token = path.read_text().strip()
    if not token:
        raise CannotStart(f"the token file {path} is empty: remove it and start again to get a new token")
    return Secret(token)


class RootToken:
    """Accepts the one token that may do everything, under either scheme that clients use, alone or in a list."""

    def __init__(self, token: Secret) -> None:
        self._token = token.reveal().encode()

    async def __call__(self, authorization: str | None) -> str:
        """The caller's name. Raises `Unauthorized`."""
        if authorization is None:
            raise Unauthorized("no token: send the header `Authorization: Bearer TOKEN`")
        for scheme in _SCHEMES:
            if authorization.startswith(scheme):
                offered = authorization.removeprefix(scheme).split(",")
                if any(hmac.compare_digest(token.strip().encode(), self._token) for token in offered):
                    return "root"
        raise Unauthorized("the token is not valid here")
