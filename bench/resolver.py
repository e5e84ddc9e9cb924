"""A node's resolver beside unbound and CoreDNS, in turns in one run: `.internal` questions a second of one core, the
processor time of one, and how long an answer takes at a given rate. `hawker dns` runs as in a node; `dnsperf` asks from
another network namespace with 32 sockets, each with a machine's address of its own, as a machine may ask 1,000 times a
second. Servers have core 0, what asks has core 1, and all the same data. Needs root and dnsperf; what is not installed
(`make bench-setup`) is left out.

    PYTHONPATH=. python bench/resolver.py [--seconds S] [--rounds N] [--apps N] [--rate R]
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from hawker.host import netns
from hawker.host.address import bridge_name, network_prefix, private_ip
from hawker.host.own_user import make_folder
from hawker.ids import AppName, MachineId, NodeId
from hawker.names import RESOLVER, KnownNames, NamedApp, NamedMachine, write_names
from hawker.place import Place
from hawker.value_object import ValueObject

_HAWKER = str(Path(sys.executable).with_name("hawker"))
_COREDNS = Path("build/bench/coredns")
_NODE, _NETWORK, _USER = NodeId("0000be7c"), 7, 1_879_048_000
_ASKING, _MACHINES_OF_APP, _UNDER_WAY = 32, 3, 64
"""Machines that ask, machines of an app, and questions under way where as many as possible are asked."""
_PORTS = {"hawker": 53, "unbound": 5301, "coredns": 5302}
_WAIT_S = 20.0
_QPS = re.compile(r"Queries per second:\s+([\d.]+)")
_ANSWERED = re.compile(r"Queries completed:\s+(\d+)")
_LOST = re.compile(r"Queries lost:\s+(\d+)")
_TOOK = re.compile(r"^> \S+ \S+ \S+ ([\d.]+)$", re.MULTILINE)

_SOURCES = """
table ip6 asking {{
  chain leave {{
    type nat hook postrouting priority 100
    ip6 daddr {host} snat to numgen inc mod {count} map {{ {addresses} }}
  }}
}}
"""
_UNBOUND = """
server:
  interface: {host}@{port}
  do-daemonize: no
  num-threads: 1
  username: ""
  chroot: ""
  pidfile: ""
  logfile: "{log}"
  use-syslog: no
  access-control: ::/0 allow
  rrset-roundrobin: yes
  module-config: "iterator"
  local-zone: "internal." static
"""
_COREFILE = """
internal:{port} {{
  bind {host}
  file {zone}
}}
"""
_ZONE = """\
internal. 5 IN SOA ns.internal. hostmaster.internal. 1 3600 600 86400 2
internal. 5 IN NS ns.internal.
"""


class Round(ValueObject, frozen=True):
    """`busy_us`: processor time of a question where as many as possible were asked. `took_ms` and `lost` are of the
    given rate."""

    rate: float
    busy_us: float
    took_ms: list[float]
    lost: float


def known(apps: int) -> KnownNames:
    """So many apps of one network, with their machines."""
    names = [AppName(f"app{number}") for number in range(apps)]
    machines = (
        (MachineId(f"{number:014x}"), names[number // _MACHINES_OF_APP]) for number in range(apps * _MACHINES_OF_APP)
    )
    return KnownNames(
        node=_NODE,
        region="ams",
        apps=tuple(NamedApp(name=name, network_id=_NETWORK) for name in names),
        machines=tuple(
            NamedMachine(id=each, app=app, ip=str(private_ip(_NETWORK, each)), node=_NODE, region="ams", started=True)
            for each, app in machines
        ),
    )


def records(names: KnownNames) -> list[tuple[str, str]]:
    """Name and address, as the resolver answers them."""
    of_apps = [(f"{each.app}.internal.", each.ip) for each in names.machines]
    return of_apps + [(f"{each.id}.vm.{each.app}.internal.", each.ip) for each in names.machines]


def _in(namespace: Path, *words: str) -> tuple[str, ...]:
    return "nsenter", f"--net={namespace}", *words


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


@contextmanager
def linked(folder: Path) -> Iterator[tuple[Path, Path]]:
    """A host with the bridge of one private network, and where its machines are."""
    host, machines, bridge = folder / "host", folder / "machines", bridge_name(_NODE, _NETWORK)
    with ExitStack() as stack:
        for namespace in (host, machines):
            netns.create(namespace, lambda _: None)
            stack.callback(netns.delete, namespace)
            _run(*_in(namespace, "ip", "link", "set", "lo", "up"))
        _run(*_in(host, "ip", "link", "add", bridge, "type", "bridge"))
        _run(*_in(host, "ip", "link", "add", "port", "type", "veth", "peer", "name", "eth0"))
        with machines.open() as handle:
            _run(*_in(host, "ip", "link", "set", "eth0", "netns", f"/proc/{os.getpid()}/fd/{handle.fileno()}"))
        _run(*_in(host, "ip", "link", "set", "port", "master", bridge, "up"))
        _run(*_in(host, "ip", "link", "set", bridge, "up"))
        _run(*_in(host, "ip", "address", "add", f"{RESOLVER}/128", "dev", bridge, "nodad"))
        _run(*_in(host, "ip", "route", "add", str(network_prefix(_NETWORK)), "dev", bridge))
        _run(*_in(machines, "ip", "link", "set", "eth0", "up"))
        for address in (asking := [str(private_ip(_NETWORK, MachineId(f"{each:014x}"))) for each in range(_ASKING)]):
            _run(*_in(machines, "ip", "address", "add", f"{address}/128", "dev", "eth0", "nodad"))
        _run(*_in(machines, "nft", _SOURCES.format(host=RESOLVER, addresses=_listed(asking), count=_ASKING)))
        _run(*_in(machines, "ip", "route", "add", f"{RESOLVER}/128", "dev", "eth0"))
        yield host, machines


def _listed(addresses: Sequence[str]) -> str:
    return ", ".join(f"{number} : {address}" for number, address in enumerate(addresses))


def _servers(folder: Path, names: KnownNames) -> dict[str, tuple[str, ...]]:
    place = Place(folder)
    place.remember(_NODE)
    make_folder(place.dns, _USER)
    write_names(place.dns, names, _USER)
    told = (_HAWKER, "dns", "--data-dir", str(folder), "--user", str(_USER), "--log-level", "error")
    servers: dict[str, tuple[str, ...]] = {"hawker": told}
    if shutil.which("unbound"):
        data = "".join(f"  local-data: '{name} 5 IN AAAA {ip}'\n" for name, ip in records(names))
        text = _UNBOUND.format(host=RESOLVER, port=_PORTS["unbound"], log=folder / "unbound.log")
        (folder / "unbound").write_text(text + data)
        servers["unbound"] = ("unbound", "-d", "-c", str(folder / "unbound"))
    if _COREDNS.exists():
        (folder / "zone").write_text(_ZONE + "".join(f"{name} 5 IN AAAA {ip}\n" for name, ip in records(names)))
        text = _COREFILE.format(host=RESOLVER, port=_PORTS["coredns"], zone=folder / "zone")
        (folder / "Corefile").write_text(text)
        servers["coredns"] = (
            "env",
            "GOMAXPROCS=1",
            str(_COREDNS.resolve()),
            "-quiet",
            "-conf",
            str(folder / "Corefile"),
        )
    return servers


@contextmanager
def serving(host: Path, machines: Path, name: str, argv: Sequence[str], questions: Path) -> Iterator[int]:
    """From when it answers: its process."""
    process = subprocess.Popen(_in(host, "taskset", "-c", "0", *argv), stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _WAIT_S
        while not _answers(machines, name, questions):
            if time.monotonic() > deadline or process.poll() is not None:
                raise TimeoutError(f"{name} does not answer")
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _answers(machines: Path, name: str, questions: Path) -> bool:
    return "NOERROR" in asked(machines, name, questions, "-n1", "-q1", "-t0.2", "-l0.5")


def asked(machines: Path, name: str, questions: Path, *more: str) -> str:
    """What `dnsperf` says, with a socket for each machine that asks."""
    where = ("-s", str(RESOLVER), "-p", str(_PORTS[name]), "-f", "inet6", f"-c{_ASKING}", "-d", str(questions))
    argv = _in(machines, "taskset", "-c", "1", "dnsperf", *where, *more)
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def _busy_s(pid: int) -> float:
    """Processor time that it has taken, the kernel's for it in it."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _number(pattern: re.Pattern[str], said: str) -> float:
    return float(pattern.findall(said)[0])


def _questions(folder: Path, names: KnownNames, apps: int) -> Path:
    lines = sorted({f"{name} AAAA\n" for name, _ in records(names)})
    lines += [f"nobody{number}.internal. AAAA\n" for number in range(max(1, apps // 10))]
    (folder / "questions").write_text("".join(lines))
    return folder / "questions"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--apps", type=int, default=100, help="each has three machines: four names, and one that lacks")
    parser.add_argument("--rate", type=int, default=10_000, help="questions a second where times are taken")
    given = parser.parse_args()
    found: dict[str, list[Round]] = {}
    with TemporaryDirectory(prefix="bench") as place, ExitStack() as stack:
        folder, names = Path(place), known(given.apps)
        host, machines = stack.enter_context(linked(folder))
        questions, servers = _questions(folder, names, given.apps), _servers(folder, names)
        pids = {
            server: stack.enter_context(serving(host, machines, server, argv, questions))
            for server, argv in servers.items()
        }
        for _ in range(given.rounds):
            for server, pid in pids.items():
                one = _round(machines, server, pid, questions, given.seconds, given.rate)
                found.setdefault(server, []).append(one)
    show(found, given.seconds)


def _round(machines: Path, server: str, pid: int, questions: Path, seconds: int, rate: int) -> Round:
    before = _busy_s(pid)
    said = asked(machines, server, questions, f"-l{seconds}", f"-q{_UNDER_WAY}")
    busy_us = 1e6 * (_busy_s(pid) - before) / _number(_ANSWERED, said)
    paced = asked(machines, server, questions, f"-l{seconds}", f"-Q{rate}", "-q1000", "-v")
    took = [1000 * float(each) for each in _TOOK.findall(paced)]
    return Round(_number(_QPS, said), busy_us, took, _number(_LOST, paced))


def show(found: Mapping[str, Sequence[Round]], seconds: int) -> None:
    heads = ("questions/s", "hawker is", "busy us", "hawker is", "p50 ms", "p99 ms", "at/s", "lost")
    print(" " * 10 + "".join(f"{head:>12}" for head in heads))
    our_rate, our_busy = _medians(found["hawker"])
    for server, rounds in found.items():
        rate, busy = _medians(rounds)
        took = sorted(each for one in rounds for each in one.took_ms)
        p50, p99 = (took[len(took) * at // 100] for at in (50, 99))
        paced, lost = len(took) / seconds / len(rounds), sum(each.lost for each in rounds)
        first = f"{server:10}{rate:12,.0f}{our_rate / rate:12.2f}{busy:12.1f}{our_busy / busy:12.2f}"
        print(f"{first}{p50:12.2f}{p99:12.2f}{paced:12,.0f}{lost:12,.0f}")


def _medians(rounds: Sequence[Round]) -> tuple[float, float]:
    return median(each.rate for each in rounds), median(each.busy_us for each in rounds)


if __name__ == "__main__":
    main()
