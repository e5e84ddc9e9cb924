"""Published ports, as who orders a machine hears of them: what of a config is served, where the host listens, or why it
does not.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from hawker.api.caller import Caller
from hawker.api.contract.machine import MachineParams
from hawker.api.contract.published_port import LIST_PUBLISHED_PORTS, PublishedPortState
from hawker.cli.exits import Failure
from hawker.clock import Clock
from hawker.config import MachineConfig
from hawker.config.machine import Port
from hawker.errors import HawkerError, Unavailable
from hawker.feed import NOT_YET, PUBLISH

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
    """What a config says and nobody acts on: it is kept, and without effect. A sentence each."""
    if config.statics:
        yield "statics are kept and not served"
    if not config.services:
        if config.disable_machine_autostart is not None:
            yield "disable_machine_autostart is kept and without effect: the machine has no services"
        return
    if not (config.metadata or {}).get(PUBLISH):
        yield (
            "its services are reached from outside only if its app has an address (hawker ips allocate),"
            " or if it is published: -p, or metadata hawker_publish=*"
        )
    for service in config.services:
        if service.force_instance_key or service.force_instance_description:
            yield f"force_instance_key is kept and not acted on: port {service.internal_port}"
        if service.protocol == "udp":
            yield f"services of protocol udp are kept and not served: port {service.internal_port}"
        for port in service.ports or ():
            yield from _unserved_of_port(port)


def _unserved_of_port(port: Port) -> Iterator[str]:
    number = port.port or port.start_port
    offered = (port.tls_options.alpn if port.tls_options else None) or ()
    if "http" in (port.handlers or ()) and set(offered) - {"h2", "http/1.1"}:
        yield f"port {number}: of tls_options.alpn only h2 and http/1.1 are offered to clients of the http handler"


def addresses(ports: Sequence[PublishedPortState]) -> str:
    """Where to reach them, as one types it."""
    shown = {(_EVERY_ADDRESS.get(port.address, port.address), port.port, port.internal_port): port for port in ports}
    return ", ".join(f"{_url(name, port)} -> {port.internal_port}" for (name, _, _), port in shown.items())


def where(ports: Sequence[PublishedPortState]) -> str:
    """The same of ports that may not be open, with the reason of each that is not."""
    closed = [port for port in ports if not port.listening]
    told = (addresses([port for port in ports if port.listening]), _why(closed) if closed else "")
    return "; ".join(filter(None, told))


def _url(name: str, port: PublishedPortState) -> str:
    host = f"[{name}]" if ":" in name else name
    scheme = ("https://" if "tls" in port.handlers else "http://") if "http" in port.handlers else ""
    return f"{scheme}{host}:{port.port}"


def _is_final(port: PublishedPortState) -> bool:
    return bool(port.refused) and port.refused != NOT_YET


def _why(missing: Sequence[PublishedPortState]) -> str:
    said = (f"{port.address} port {port.port} is not published: {port.refused}" for port in missing)
    return "; ".join(said) or "the edge of its host does not answer"
