"""Who we are to a registry: given with the pull, or from a file in the format of Docker's config.json."""

import base64
import binascii
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hawker.errors import Unavailable
from hawker.image.reference import DEFAULT_REGISTRY
from hawker.log import Secret

_DOCKER_HUB = ("https://index.docker.io/v1/", "index.docker.io", "registry-1.docker.io")


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name and a password or access token."""

    username: str
    password: Secret

    def basic(self) -> str:
        """The value of an Authorization header."""
        pair = f"{self.username}:{self.password.reveal()}"
        return "Basic " + base64.b64encode(pair.encode()).decode()


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    auth: str = ""
    username: str = ""
    password: str = ""


class _AuthFile(msgspec.Struct, frozen=True, kw_only=True):
    auths: dict[str, _Entry] = {}


def find_credentials(file: Path | None, registry: str) -> Credentials | None:
    """The file's entry for a registry. It is read at each pull, so that a login counts at once."""
    if file is None:
        return None
    try:
        found = msgspec.json.decode(file.read_bytes(), type=_AuthFile)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise Unavailable(f"the registry credentials in {file} cannot be read: {error}") from error
    for key in _keys(registry):
        if key in found.auths:
            return _credentials(found.auths[key])
    return None


def _keys(registry: str) -> tuple[str, ...]:
    names = (
        registry,
        f"https://{registry}",
        f"http://{registry}",
        f"https://{registry}/v1/",
        f"https://{registry}/v2/",
    )
    return names + _DOCKER_HUB if registry == DEFAULT_REGISTRY else names


def _credentials(entry: _Entry) -> Credentials | None:
    if entry.username:
        return Credentials(entry.username, Secret(entry.password))
    try:
        username, colon, password = base64.b64decode(entry.auth, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return Credentials(username, Secret(password.rstrip("\0"))) if colon else None
