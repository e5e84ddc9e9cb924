"""Published ports, as who orders a machine hears of them: what of a config is served, where the host listens, or why it
does not.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import click

from hawker.api.caller import Caller
from hawker.api.contract.machine import MachineParams
from hawker.api.contract.port import LIST_PUBLISHED_PORTS, NOT_YET, PublishedPortState
from hawker.cli.exits import Failure
from hawker.clock import Clock
from hawker.config import PUBLISH, MachineConfig
from hawker.config.service_rules import kept_only
from hawker.errors import HawkerError, Unavailable

_WITHIN_S, _AGAIN_S = 15.0, 0.05
_EVERY_ADDRESS = {"0.0.0.0": "localhost", "::": "localhost"}


async def published(
    caller: Caller, params: MachineParams, config: MachineConfig | None, clock: Clock
) -> tuple[PublishedPortState, ...]:
    """The machine's ports, once the host listens at all of them; none when it publishes none. Raises `Failure` when
    the host does not listen at one: the machine runs all the same."""
    if config is None or not (config.metadata or {}).get(PUBLISH):
        return ()
    deadline = clock.monotonic() + _WITHIN_S
    while True:
        ports: tuple[PublishedPortState, ...] = ()
        with suppress(Unavailable):
            ports = await caller.call(LIST_PUBLISHED_PORTS, params=params)
        missing = [port for port in ports if not port.listening]
        if ports and not missing:
            return ports
        if clock.monotonic() >= deadline or any(_is_final(port) for port in missing):
            raise Failure(f"machine {params.machine_id} runs, but {_why(missing)}")
        await clock.sleep(_AGAIN_S)


async def published_now(
    caller: Caller, params: MachineParams, config: MachineConfig | None
) -> tuple[PublishedPortState, ...]:
    """The machine's ports as they are; none when it publishes none, or when its host does not say."""
    if config is None or not (config.metadata or {}).get(PUBLISH):
        return ()
    with suppress(HawkerError):
        return await caller.call(LIST_PUBLISHED_PORTS, params=params)
    return ()


def unserved(config: MachineConfig) -> Iterator[str]:
    """What a config says and nobody acts on, and what is to be done before its services are reached."""
    if config.services and not (config.metadata or {}).get(PUBLISH):
        yield (
            "its services are reached from outside only if its app has an address (hawker ips allocate),"
            " or if it is published: -p, or metadata hawker_publish=*"
        )
    yield from kept_only(config)


def warn(config: MachineConfig, before: MachineConfig | None = None) -> None:
    """Of that on stderr, less what was so `before`."""
    known = frozenset(unserved(before) if before is not None else ())
    for sentence in unserved(config):
        if sentence not in known:
            click.echo(f"warning: {sentence}", err=True)


def addresses(ports: Sequence[PublishedPortState]) -> str:
    """Where to reach them, as one types it."""
    shown = ((_url(_EVERY_ADDRESS.get(port.address, port.address), port), port.internal_port) for port in ports)
    return ", ".join(f"{url} -> {internal}" for url, internal in dict.fromkeys(shown))


def where(ports: Sequence[PublishedPortState]) -> str:
    """The same of ports that may not be open, with the reason of each that is not."""
    closed = [port for port in ports if not port.listening]
    told = (addresses([port for port in ports if port.listening]), _why(closed) if closed else "")
    return "; ".join(filter(None, told))


def _url(name: str, port: PublishedPortState) -> str:
    host = f"[{name}]" if ":" in name else name
    scheme = ("https://" if "tls" in port.handlers else "http://") if "http" in port.handlers else ""
    return f"{scheme}{host}:{port.port}{_protocol(port)}"


def _protocol(port: PublishedPortState) -> str:
    return "/udp" if port.protocol == "udp" else ""


def _is_final(port: PublishedPortState) -> bool:
    return bool(port.refused) and port.refused != NOT_YET


def _why(missing: Sequence[PublishedPortState]) -> str:
    said = (f"{port.address} port {port.port}{_protocol(port)} is not published: {port.refused}" for port in missing)
    return "; ".join(said) or "the edge of its host does not answer"
