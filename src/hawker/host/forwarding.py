"""The kernel switches (sysctl) that machines' networks need, on the host, on a bridge and inside a machine."""

from pathlib import Path

from hawker.errors import CannotStart

_NET = Path("/proc/sys/net")
_ACCEPT_RA_EVEN_WHEN_FORWARDING = "2"
_ANSWER_FOR_NOBODY = "8"


def allow_forwarding() -> None:
    """Let the host route. A Linux host that routes ignores router advertisements and would lose its own IPv6 default
    route, so interfaces that listen to them are told to go on listening. Raises `CannotStart`."""
    try:
        if _read("ipv6/conf/all/forwarding") == "0":
            _keep_listening_to_routers()
            _write("ipv6/conf/all/forwarding", "1")
        _write("ipv4/ip_forward", "1")
    except FileNotFoundError as error:
        raise CannotStart("IPv6 is disabled on this host: boot the kernel without ipv6.disable=1") from error
    except OSError as error:
        raise CannotStart(f"cannot turn on packet forwarding ({error.strerror}): run as root") from error


def prepare_bridge(name: str) -> None:
    """Machines are no routers to the host."""
    _write(f"ipv6/conf/{name}/accept_ra", "0")


def prepare_machine() -> None:
    """In a machine's fresh namespace, before its link is there: believe no neighbour that claims to be a router, and
    let any user ping and listen on low ports, for which root would else be needed."""
    _write("ipv6/conf/default/accept_ra", "0")
    _write("ipv6/conf/default/accept_redirects", "0")
    _write("ipv4/ip_unprivileged_port_start", "0")
    _write("ipv4/ping_group_range", "0 2147483647")


def silence() -> None:
    """In the fresh namespace of a machine with a kernel of its own: frames pass it by, and none is answered or shown to
    packet rules."""
    for which in ("all", "default"):
        _write(f"ipv6/conf/{which}/disable_ipv6", "1")
        _write(f"ipv4/conf/{which}/arp_ignore", _ANSWER_FOR_NOBODY)
    for switch in (_NET / "bridge").glob("bridge-nf-call-*"):
        switch.write_text("0")


def _keep_listening_to_routers() -> None:
    for interface in (_NET / "ipv6/conf").iterdir():
        key = f"ipv6/conf/{interface.name}/accept_ra"
        if interface.name not in ("all", "default") and _read(key) == "1":
            _write(key, _ACCEPT_RA_EVEN_WHEN_FORWARDING)


def _read(key: str) -> str:
    return (_NET / key).read_text().strip()


def _write(key: str, value: str) -> None:
    (_NET / key).write_text(value)
