"""`hawker node mesh`: this host's end of the tunnels to other hosts, on the host itself: what its device says, and a
new key, which is a file that the node looks at.
"""

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from hawker.api.contract.body import instant
from hawker.cli.exits import ExitStatus
from hawker.cli.output import Form, age, output_option, show, show_change, size, table
from hawker.clock import SystemClock
from hawker.errors import CannotStart
from hawker.fleet.mesh import SILENT_S
from hawker.host.mesh.device import OwnDevice, device_with
from hawker.host.mesh.wireguard import MeshState, PeerTraffic, own_key, renew_key
from hawker.place import Place, default_data_dir


class TunnelView(msgspec.Struct, frozen=True, kw_only=True):
    """A tunnel to another host, at `endpoint`; `key` is its public key. `state` is works, or silent where no hands were
    shaken for 200 s. `machines` is how many machines and people's computers it leads to. Bytes are those that came and
    went."""

    key: str
    endpoint: str
    state: str
    handshake_at: datetime | None
    machines: int
    received_bytes: int
    """Since the device was made, 0 or more."""
    sent_bytes: int
    """Since the device was made, 0 or more."""
    carrier: str
    """The carrier of the tunnel's packets: kernel, or the file of a program; empty where that is not found."""


@click.group("mesh", no_args_is_help=True)
def command() -> None:
    """This host's end of the tunnels to other hosts."""


_data_dir: Callable[[Any], Any] = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="PATH",
    help="The node's data directory; HAWKER_DATA_DIR, or /var/lib/hawker for root.",
)


@command.command("show")
@_data_dir
@output_option
def show_tunnels(data_dir: Path | None, form: Form) -> int:
    """Show this host's tunnels and whether they work.

    One line for each host that has a machine of a network that is here. The ends of a tunnel that works shake hands
    every two minutes; one that has not for 200 s is silent. CARRIER is the kernel or the program that carries the
    packets. For root, on the host; its node may be down.

    \b
    Examples:
      hawker node mesh show
      hawker node mesh show --data-dir ./node -o json
    """
    place = _place(data_dir)
    try:
        device = device_with(own_key(place.mesh_key)) or OwnDevice(MeshState(), "")
    except OSError as error:
        raise CannotStart(f"the device of the tunnels cannot be read: {error.strerror or error}") from error
    now = SystemClock().now()
    show(tunnels(device, now), form, lambda found: tunnels_table(found, now))
    return ExitStatus.OK


def tunnels(device: OwnDevice, now: float) -> tuple[TunnelView, ...]:
    """The tunnels of the device, by endpoint. `now` is Unix time."""
    state, found = device.state, []
    for key, peer in state.peers.items():
        traffic = state.traffic.get(key, PeerTraffic())
        found.append(
            TunnelView(
                key=key,
                endpoint=peer.endpoint,
                state="works" if now - traffic.handshake_at < SILENT_S else "silent",
                handshake_at=instant(traffic.handshake_at) if traffic.handshake_at else None,
                machines=len(peer.allowed),
                received_bytes=traffic.received_bytes,
                sent_bytes=traffic.sent_bytes,
                carrier=device.carrier,
            )
        )
    return tuple(sorted(found, key=lambda each: (each.endpoint, each.key)))


def tunnels_table(found: tuple[TunnelView, ...], now: float) -> str:
    rows = (
        (
            each.endpoint,
            each.state,
            None if each.handshake_at is None else f"{age(each.handshake_at, instant(now))} ago",
            each.machines,
            size(each.received_bytes),
            size(each.sent_bytes),
            each.carrier or None,
            each.key,
        )
        for each in found
    )
    return table(("HOST", "STATE", "HANDSHAKE", "MACHINES", "RECEIVED", "SENT", "CARRIER", "KEY"), rows)


@command.command("rekey")
@_data_dir
@output_option
def rekey(data_dir: Path | None, form: Form) -> int:
    """Give the node of this host another key for its tunnels.

    A node that is up takes it within a second and tells the others; one that is not, when it begins. Packets between
    this host and others may be lost for some five seconds, and connections go on. The old key is gone: the others
    believe it no more.

    \b
    Examples:
      hawker node mesh rekey
      hawker node mesh rekey --data-dir ./node
    """
    key = renew_key(_place(data_dir).mesh_key).public
    show_change(form, f"the public key of this host's tunnels is {key}", key=key)
    return ExitStatus.OK


def _place(data_dir: Path | None) -> Place:
    """Raises `CannotStart` where its node has no tunnels."""
    place = Place((data_dir or Path(os.environ.get("HAWKER_DATA_DIR") or default_data_dir())).absolute())
    if not place.mesh_key.exists():
        text = "has no tunnels: its node is alone, or does without them (--mesh off)"
        raise CannotStart(f"{place.root} {text}")
    return place
