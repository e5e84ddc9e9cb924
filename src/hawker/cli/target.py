"""Which node a command talks to. The local node is found by what it leaves in its data directory. Apart from `connect`,
which imports a whole HTTP client.

That address may be an old one: while the daemon is down any user of the host can listen there. So the local node's
token goes only where a socket of root's, of the token's owner or of the caller's own listens. The kernel says whose it
is (proc_net_tcp(5)), also of one that systemd or a template holds for a daemon that boots.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from hawker.cli.access import Access
from hawker.deferred import deferred
from hawker.errors import Unauthorized, Unavailable
from hawker.http.message import origin_of
from hawker.log import Secret
from hawker.place import Place, default_data_dir
from hawker.value_object import ValueObject

if TYPE_CHECKING:
    import click
else:
    click = deferred("click")

VARIABLES = frozenset({"HAWKER_URL", "HAWKER_TOKEN", "HAWKER_APP"})
"""The client's own variables: no settings of a node."""


_PROC = Path("/proc")
_NET = _PROC / "net"
_LISTENS = "0A"
_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO: locks of other namespaces are in nobody's list but this one's


class Target(ValueObject, frozen=True):
    url: str
    """Of the node's API, as it was told or found."""
    token: Secret | None


def target_of(ctx: "click.Context") -> Target:
    """The node that the command line names."""
    return find_node(ctx.find_object(Access) or Access(), os.environ)


def find_node(access: Access, environ: Mapping[str, str]) -> Target:
    """Flags, then variables, then the local node. The local node's token is sent to its own address only. Raises
    `Unavailable` where that is not the node's any more."""
    place = _place(environ)
    local = _read(place.address)
    url = access.url or environ.get("HAWKER_URL") or local
    if url is None:
        raise Unavailable(
            f"no node found: HAWKER_URL is not set and {place.root} has no node's address;"
            " start a node with `hawker up`"
        )
    token = given_token(access, environ)
    if token is None and url.rstrip("/") == (local or "").rstrip("/"):
        token = _local_token(place)
        if token is not None:
            _refuse_strangers(place, _with_scheme(url))
    return Target(_with_scheme(url), token)


def _with_scheme(url: str) -> str:
    """HOST:PORT is taken too, as `hawker join` takes it. Raises `click.UsageError` for what is no address."""
    whole = url if "://" in url else f"http://{url}"
    if origin_of(whole) is None:
        raise click.UsageError(f"{url!r} is not a node's address, such as http://127.0.0.1:4280")
    return whole


def _refuse_strangers(place: Place, url: str) -> None:
    """Raises `Unavailable` unless the local node, or who holds its address for it, listens at `url`."""
    users = _listeners(url)
    if not users and _is_held(place.root) is False:
        raise Unavailable(
            f"the node of {place.root} is not running: start it with `hawker up`, or `systemctl start hawker`"
        )
    if strangers := users - {0, os.geteuid(), place.token.stat().st_uid}:
        raise Unavailable(
            f"the node of {place.root} is not running, and a process of user {min(strangers)} listens at its address"
            f" {url}; the token was not sent. End that process, and start the node with `hawker up`"
        )


def _listeners(url: str) -> set[int]:
    """The users whose sockets take connections to `url` in this network namespace; none for a name."""
    origin = origin_of(url)
    assert origin is not None
    try:
        address = ip_address(origin.host)
    except ValueError:
        return set()
    for table, addresses in _tables(address):
        if users := set(_users(_NET / table, {f"{each}:{origin.port:04X}" for each in addresses})):
            return users  # the kernel lets nobody else listen beside them, but for IPv6 alone
    return set()


def _tables(address: IPv4Address | IPv6Address) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Where the kernel lists who takes connections to an address, and how it writes this one and the wildcard."""
    if address.is_unspecified:  # so a connection to it goes
        address = ip_address("127.0.0.1" if address.version == 4 else "::1")
    if isinstance(address, IPv4Address):
        yield "tcp", (_in_table(address.packed), _in_table(bytes(4)))
        address = IPv6Address(b"\0" * 10 + b"\xff\xff" + address.packed)
    yield "tcp6", (_in_table(address.packed), _in_table(bytes(16)))


def _in_table(packed: bytes) -> str:
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


def _users(table: Path, places: set[str]) -> Iterator[int]:
    """Sockets that listen stand before the connections, of which there may be a hundred thousand."""
    with suppress(OSError), table.open() as lines:
        next(lines, None)
        for line in lines:
            words = line.split()
            if words[3] != _LISTENS:
                return
            if words[1] in places:
                yield int(words[7])


def _is_held(root: Path) -> bool | None:
    """Whether a daemon has the data directory (proc_locks(5)); None where that cannot be seen, as in a container. No
    lock is tried: a daemon that begins at that moment would be refused. By the inode alone: some file systems tell
    programs another device than the kernel's list has."""
    try:
        if os.stat(_PROC / "self/ns/pid").st_ino != _FIRST_PID_NAMESPACE:
            return None
        wanted = f":{os.stat(root).st_ino}"
        lines = (_PROC / "locks").read_text().splitlines()
    except OSError:
        return None
    return any("FLOCK" in words and any(each.endswith(wanted) for each in words) for words in map(str.split, lines))


def token_at_hand(access: Access, environ: Mapping[str, str]) -> Secret | None:
    """The token that a command would send, or the local node's; for what is done without asking a node."""
    return given_token(access, environ) or _local_token(_place(environ))


def given_token(access: Access, environ: Mapping[str, str]) -> Secret | None:
    """By the option, else by the variable."""
    given = access.token or environ.get("HAWKER_TOKEN")
    return Secret(given) if given else None


def _place(environ: Mapping[str, str]) -> Place:
    return Place(Path(environ.get("HAWKER_DATA_DIR") or default_data_dir()))


def _local_token(place: Place) -> Secret | None:
    text = _read(place.token)
    return Secret(text) if text else None


def _read(file: Path) -> str | None:
    """None when it is not there. Raises `Unauthorized` when it is someone else's."""
    try:
        return file.read_text().strip()
    except PermissionError as error:
        raise Unauthorized(
            f"cannot read the local node's {file.name} in {file.parent}: another user owns it"
        ) from error
    except OSError:
        return None
