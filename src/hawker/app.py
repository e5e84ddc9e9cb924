"""Apps and names: what an app, machine, network or WireGuard peer may be called. Pure; the records are in `worker`."""

import hashlib
import re
from collections.abc import Callable, Iterator
from itertools import count

from hawker.errors import Unprocessable
from hawker.ids import AppName

DEFAULT_ORG = "personal"
DEFAULT_NETWORK = "default"

_APP_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_MACHINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_PEER_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NETWORK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}")


def app_name(text: str) -> AppName:
    """Raises `Unprocessable` with the text that clients know."""
    if not _APP_NAME.fullmatch(text):
        raise Unprocessable("Validation failed: Name under 63 chars using numbers, lowercase letters and dashes")
    return AppName(text)


def machine_name(text: str) -> str:
    """Wider than an app's name, because clients name machines in more ways. Raises `Unprocessable`."""
    if not _MACHINE_NAME.fullmatch(text):
        raise Unprocessable(
            f"name: {text!r:.80} is not a machine name: use up to 63 letters, digits, dashes, dots and underscores, "
            "beginning with a letter or digit"
        )
    return text


_FIRST = """
amber ashen bold brisk calm clear cold crisp dark dawn deep dry dusty early fair faint fleet gentle gilded grand
hardy hazy hidden high icy keen late light lively long loud lucky mellow mild misty noble old pale plain proud
quick quiet rapid rare rough royal rustic sandy sharp shy silent slow small snowy soft spare still stout sunny
tall tidy warm wild
""".split()
_SECOND = """
bay beach bell birch bird breeze brook bush cart cliff cloud coast cove crow dune elm field fire fjord fog ford
forest frost gate glade grove gull harbor heath hill inlet isle kiln lake lane lark leaf marsh meadow mill moor
moss oak path peak pier pine pond quay rain reef ridge river rock shore sky smith snow stall stone stream tide
vale wind wood
""".split()


def new_machine_name(random: Callable[[], float]) -> str:
    """A name for a new machine, for example `quiet-stall-4127`; it is not unique by itself. `random` returns numbers
    from 0 to 1, 1 not included."""
    first = _FIRST[int(random() * len(_FIRST))]
    second = _SECOND[int(random() * len(_SECOND))]
    return f"{first}-{second}-{int(random() * 9000) + 1000}"


def peer_name(text: str) -> str:
    """`text`, which is the name of a WireGuard peer: 1 to 63 lower-case letters, digits and dashes. Raises
    `Unprocessable` when it is no such name."""
    if not _PEER_NAME.fullmatch(text):
        raise Unprocessable(f"peer: {text!r:.80} is no name: use up to 63 lower-case letters, digits and dashes")
    return text


def network_name(text: str | None) -> str:
    """The network that an app is on; absent and empty mean the default one. Raises `Unprocessable`."""
    if not text:
        return DEFAULT_NETWORK
    if not _NETWORK_NAME.fullmatch(text):
        raise Unprocessable("network: use up to 63 letters, digits and dashes, beginning with a letter")
    return text


def network_ids(org: str, network: str) -> Iterator[int]:
    """The numbers that a private network may have, in the order in which they are claimed: the same on every host."""
    yield network_id(org, network)
    for number in count(1):
        yield network_id(org, f"{network}/{number}")


def network_id(org: str, network: str) -> int:
    """The 32 bits that a private network has in its addresses, unless another one has them already."""
    return int.from_bytes(hashlib.sha256(f"{org}/{network}".encode()).digest()[:4], "big")
