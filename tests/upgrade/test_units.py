"""The systemd units in `deploy/`: systemd understands them, they do no machine harm, and a node can live in them."""

import configparser
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.runtime.oci_bundle import seccomp_profile
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import HELLO, Shop
from tests.upgrade.builds import ROOT

SERVICE, SOCKET = ROOT / "deploy/hawker.service", ROOT / "deploy/hawker.socket"
BROKER = ROOT / "deploy/hawker-broker.service"

MAKES_A_MOUNT_NAMESPACE = """BindPaths BindReadOnlyPaths ExecPaths InaccessiblePaths MountAPIVFS NoExecPaths
PrivateDevices PrivateIPC PrivateMounts PrivateTmp ProcSubset ProtectControlGroups ProtectHome ProtectKernelLogs
ProtectKernelModules ProtectKernelTunables ProtectProc ProtectSystem ReadOnlyPaths ReadWritePaths RootDirectory
RootImage TemporaryFileSystem DynamicUser StateDirectory LogsDirectory CacheDirectory PrivateNetwork PrivateUsers
""".split()
MACHINES_WOULD_INHERIT = """NoNewPrivileges SystemCallArchitectures LockPersonality RestrictNamespaces RestrictSUIDSGID
MemoryDenyWriteExecute ProtectClock ProtectHostname AmbientCapabilities LimitNPROC LimitFSIZE LimitCORE""".split()
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16, "AF_ALG": 38, "AF_VSOCK": 40}


def settings(unit: Path, section: str) -> dict[str, str]:
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.read_text())
    return dict(parser[section])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_has_no_complaint() -> None:
    command = ["systemd-analyze", "verify", "--man=no", str(SERVICE), str(SOCKET), str(BROKER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_a_process_strangers_speak_to_has_next_to_no_rights() -> None:
    """systemd's own score of exposure, times ten: 0 is best, 100 worst."""
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(BROKER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_the_score_of_the_workers_unit_is_the_one_that_the_page_of_threats_tells() -> None:
    """It grows with each right that is added without being written down."""
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(SERVICE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    score = re.search(r"exposure level for hawker.service: ([0-9.]+)", done.stdout)
    assert score is not None, done.stdout
    assert f"scores {score[1]} in `systemd-analyze security`" in (ROOT / "docs/threat-model.md").read_text()


def test_nothing_in_the_unit_would_take_machines_along_or_change_them() -> None:
    service = settings(SERVICE, "Service")
    assert service["KillMode"] == "process"
    assert set(service).isdisjoint({*MAKES_A_MOUNT_NAMESPACE, *MACHINES_WOULD_INHERIT})


def refused_calls() -> list[str]:
    """Those that the filter of the worker's unit names, with what is in systemd's groups."""
    names = settings(SERVICE, "Service")["SystemCallFilter"].removeprefix("~").split()
    told = [
        subprocess.check_output(["systemd-analyze", "syscall-filter", each], text=True)
        for each in names
        if each[0] == "@"
    ]
    lines = [line.strip() for text in told for line in text.splitlines()[1:]]
    return [line for line in lines if line and line[0] not in "#@"] + [each for each in names if each[0] != "@"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_the_units_filter_refuses_nothing_that_a_machine_may_do() -> None:
    """Machines inherit it: what it refuses, their own filter refuses already."""
    rules = seccomp_profile()["syscalls"]
    allowed = {name for rule in rules if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
    refused = refused_calls()
    assert {"clock_settime", "kexec_load", "init_module", "swapon", "iopl"} <= set(refused)
    assert allowed.isdisjoint(refused)
    sockets = [rule for rule in rules if "socket" in rule["names"] and rule["action"] == "SCMP_ACT_ALLOW"]
    families = {rule["args"][0]["value"] for rule in sockets}
    assert families <= {FAMILIES[name] for name in settings(SERVICE, "Service")["RestrictAddressFamilies"].split()}


def test_a_node_that_cannot_start_is_not_started_for_ever() -> None:
    unit, service = settings(SERVICE, "Unit"), settings(SERVICE, "Service")
    assert service["RestartPreventExitStatus"] == "2"
    crashes = int(unit["StartLimitIntervalSec"]) / (int(service["RestartSec"]) + 1)
    assert crashes < int(unit["StartLimitBurst"]), "a daemon that crashes within a second is never given up"


@pytest.fixture
def confined(tmp_path: Path) -> Iterator[RunningNode]:
    """With the capabilities and the calls that the unit leaves it."""
    service = settings(SERVICE, "Service")
    dropped = ",".join(
        f"-{name.removeprefix('CAP_').lower()}" for name in service["CapabilityBoundingSet"].lstrip("~").split()
    )
    families = ",".join(str(FAMILIES[name]) for name in service["RestrictAddressFamilies"].split())
    filtered = [sys.executable, str(ROOT / "tests/upgrade/unit_filter.py"), ",".join(refused_calls()), families]
    with running_node(
        tmp_path / "node", "--ephemeral", before_it=["setpriv", "--bounding-set", dropped, *filtered]
    ) as node:
        yield node


@pytest.mark.anyio
@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(
    not all(map(shutil.which, ("setpriv", "systemd-analyze"))), reason="setpriv or systemd-analyze is missing"
)
async def test_a_node_lives_with_the_rights_that_the_unit_leaves_it(confined: RunningNode) -> None:
    async with confined.client() as client:
        shop = await Shop(client, "confined").open()
        machine = await shop.run({"image": HELLO, "guest": {"memory_mb": 64}})
        assert await shop.said(machine.id, "/bin/hello", "env")
        await shop.stop(machine.id)
        await shop.wait(machine.id, "stopped")
        await shop.start(machine.id)
        await shop.wait(machine.id, "started")
        await shop.destroy(machine.id)
        await shop.gone(machine.id)
