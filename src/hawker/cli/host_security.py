"""What of a host makes its machines less safe than they could be: read from its files, changed nowhere. For people who
run a node; the node itself works on such a host. Versions of the kernel are not judged: distributions mend them without
changing their numbers.
"""

import re
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path

from hawker.cluster import read_cluster
from hawker.errors import CannotStart
from hawker.host.mapping_trial import lack_of_mapping
from hawker.value_object import ValueObject

_CRUN_MENDED = (1, 20)
_SECRET_FILES = ("token", "key", "cluster.json", "hawker.db", "audit", "joining")
_CRUN_S = 5.0


class Weakness(ValueObject, frozen=True):
    """`about` is a file or a part of the host; `advice` completes "what to do"."""

    about: str
    detail: str
    """What was found, for people."""
    advice: str


class HostSecurity(ValueObject, frozen=True):
    """`root` is where the host's /proc and /sys are; `has_af_alg` tries a socket, `crun` says its version, `parser`
    where AppArmor's is; `lack_of_ids` says why machines cannot have ids of their own, or ""."""

    data_dir: Path
    root: Path = Path("/")
    lack_of_ids: Callable[[Path], str] = lambda directory: lack_of_mapping(directory)  # noqa: PLW0108
    has_af_alg: Callable[[], bool] = lambda: _has_af_alg()  # noqa: PLW0108
    crun: Callable[[], str] = lambda: _crun()  # noqa: PLW0108
    parser: Callable[[], str | None] = lambda: shutil.which("apparmor_parser")

    def weaknesses(self) -> list[Weakness]:
        return [*self._kernel(), *self._ids(), *self._tools(), *self._files(), *self._network()]

    def _kernel(self) -> Iterator[Weakness]:
        if self.has_af_alg():
            advice = "blacklist the modules af_alg and algif_* unless a program of the host needs them"
            yield Weakness("AF_ALG", "the kernel's crypto sockets can be opened, as for CVE-2026-31431", advice)
        if self._value("sys/kernel/mm/ksm/run") == "1":
            yield Weakness("KSM", "equal pages of machines are merged: tells who has what", "echo 2 > its file")
        if self._value("sys/devices/system/cpu/smt/active") == "1":
            yield Weakness(
                "SMT", "threads of one core are shared by machines", "boot with nosmt if tenants are hostile"
            )
        if self._value("sys/module/apparmor/parameters/enabled") == "Y" and not self.parser():
            yield Weakness("AppArmor", "containers have no profile: there is no apparmor_parser", "install apparmor")
        if self._value("proc/sys/kernel/dmesg_restrict") == "0":
            yield Weakness("dmesg", "every user reads the kernel's log", "sysctl kernel.dmesg_restrict=1")
        if len((self._value("proc/swaps") or "").splitlines()) > 1:
            yield Weakness(
                "swap", "memory of machines, secrets too, may be written to a disk", "encrypt it, or swapoff"
            )

    def _ids(self) -> Iterator[Weakness]:
        if lack := self.lack_of_ids(self.data_dir):
            advice = "run a kernel and a filesystem with idmapped mounts (Linux 5.19), or microVMs"
            yield Weakness("user namespaces", f"root of a container is root of the host: {lack}", advice)

    def _tools(self) -> Iterator[Weakness]:
        found = re.search(r"(\d+)\.(\d+)", self.crun())
        if found is not None and (int(found[1]), int(found[2])) < _CRUN_MENDED:
            detail = f"{found[0]} may have CVE-2025-24965, which needs a handler that Hawker does not set"
            yield Weakness("crun", detail, "install 1.20 or later, or see that your distribution has mended it")

    def _files(self) -> Iterator[Weakness]:
        for path in (self.data_dir, *(self.data_dir / name for name in _SECRET_FILES)):
            try:
                mode = stat.S_IMODE(path.stat().st_mode)
            except OSError:
                continue
            if mode & 0o077:
                yield Weakness(str(path), f"other users may use it: mode {mode:04o}", f"chmod go= {path}")

    def _network(self) -> Iterator[Weakness]:
        try:
            cluster = read_cluster(self.data_dir / "cluster.json")
        except CannotStart:
            return
        if cluster is not None and not _is_loopback(cluster.advertise):
            detail = f"nodes call each other in plain HTTP at {cluster.advertise}, port {cluster.peer_port + 1}"
            yield Weakness("the network between nodes", detail, "use a private network, or WireGuard between hosts")

    def _value(self, name: str) -> str | None:
        try:
            return (self.root / name).read_text().strip()
        except OSError:
            return None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _has_af_alg() -> bool:
    try:
        socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET).close()
    except OSError:
        return False
    return True


def _crun() -> str:
    try:
        done = subprocess.run(["crun", "--version"], capture_output=True, text=True, timeout=_CRUN_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
