"""The AppArmor profile of a node's containers, on a host whose kernel has AppArmor.

It is a second wall behind the system call filter, the masked paths and the machine's own users: what it refuses, those
refuse already. The profile is the node's own, by its id; it is replaced when a daemon starts, and removed with the
node. A machine keeps it for as long as it runs, whoever else is restarted.
"""

import shutil
import subprocess
from pathlib import Path

from hawker.ids import NodeId
from hawker.log import bind
from hawker.value_object import ValueObject

_ENABLED = Path("sys/module/apparmor/parameters/enabled")
_LOADED = Path("sys/kernel/security/apparmor/profiles")
_PARSER_S = 30.0
_log = bind("hawker.host")


class AppArmor(ValueObject, frozen=True):
    """The profile of one node's containers. `root` is the directory with the host's /sys; `parser` is the program that
    gives profiles to the kernel."""

    node_id: NodeId
    root: Path = Path("/")
    parser: str = "apparmor_parser"

    @property
    def name(self) -> str:
        return f"hawker-{self.node_id}"

    def lack(self) -> str:
        """Why containers have no profile here; "" where they can have one."""
        try:
            enabled = (self.root / _ENABLED).read_text().strip() == "Y"
        except OSError:
            enabled = False
        if not enabled:
            return "the kernel has no AppArmor, or it is switched off"
        if shutil.which(self.parser) is None:
            return f"{self.parser} is missing: apt-get install apparmor"
        return ""

    def load(self) -> str:
        """Give the profile to the kernel. Returns its name; "" where containers have none, which is logged where the
        host could have one."""
        if lack := self.lack():
            if (self.root / _ENABLED).exists():
                _log.warning("containers have no AppArmor profile", extra={"reason": lack})
            return ""
        if refused := self._parse("--replace", profile_text(self.name)):
            _log.warning("containers have no AppArmor profile", extra={"reason": refused})
            return ""
        return self.name

    def remove(self) -> None:
        """Remove the profile from the kernel. Processes that still have it are confined no more: there must be none.
        Idempotent."""
        if self.lack() or not self._is_loaded():
            return
        if refused := self._parse("--remove", f"profile {self.name} {{ }}\n"):
            _log.warning("an AppArmor profile stays on the host", extra={"profile": self.name, "reason": refused})

    def _is_loaded(self) -> bool:
        try:
            lines = (self.root / _LOADED).read_text().splitlines()
        except OSError:
            return True
        return any(line.split(" ", 1)[0] == self.name for line in lines)

    def _parse(self, change: str, text: str) -> str:
        """Why it did not work, or ""."""
        command = [self.parser, change, "--skip-cache"]
        try:
            done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_PARSER_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return "" if done.returncode == 0 else " ".join(done.stderr.split())[:500] or f"status {done.returncode}"


_HIDDEN = (
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/sysrq-trigger",
    "/sys/devices/virtual/powercap/**",
    "/sys/firmware/**",
    "/sys/kernel/debug/**",
    "/sys/kernel/security/**",
    "/sys/kernel/tracing/**",
)
_UNCHANGED = (
    *("/proc/*", "/proc/[^1-9s]*/**", "/proc/s[^y]*/**"),  # what is of no process, but for /proc/sys
    *("/proc/sys/[^k]**", "/proc/sys/k[^e]**", "/proc/sys/kernel/[^s]**", "/proc/sys/kernel/s[^h]**"),
    *("/sys/[^f]*/**", "/sys/f[^s]*/**", "/sys/fs/[^c]*/**", "/sys/fs/c[^g]*/**", "/sys/fs/cg[^r]*/**"),
)
"""Files that no process may write to: all of /proc and /sys but those of processes, /proc/sys/kernel/shm*, which are of
the machine's own namespace, and the control groups, which are mounted so that they cannot be written to."""


def profile_text(name: str) -> str:
    """The profile's text. A process may do what any process can, except: change what the kernel shows of the host,
    mount, and look into or signal processes that are not of the node's machines. Machines of a node are kept from each
    other by their namespaces."""
    return "\n".join(
        (
            f"profile {name} flags=(attach_disconnected,mediate_deleted) {{",
            "  file,",
            "  network,",
            "  capability,",
            "  umount,",
            "  unix,",
            f"  signal (send, receive) peer={name},",
            *(f"  signal (receive) peer={each}," for each in ("unconfined", "crun")),
            f"  ptrace (read, readby, trace, tracedby) peer={name},",
            "  deny mount,",
            "  deny pivot_root,",
            *(f"  deny capability {each}," for each in ("mac_admin", "mac_override", "sys_module", "syslog")),
            *(f"  deny {each} rwklx," for each in _HIDDEN),
            *(f"  deny {each} wkl," for each in _UNCHANGED),
            "}",
            "",
        )
    )
