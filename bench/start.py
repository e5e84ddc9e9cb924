"""How long a stopped container machine takes to start, from the API call to `started`, beside bare `crun run` of the
same bundle, cold and warm. Interleaved in one run; prints the table of docs/benchmarks.md.

Cold: the host has rested for 0.15 s. The first process that is then moved into a control group waits for a grace period
of the kernel, and whoever comes within the next milliseconds finds that wait already done: that is warm.

    python bench/start.py [rounds]
"""

import os
import resource
import shutil
import sys
from pathlib import Path
from tempfile import mkdtemp

import msgspec
from bench_node import BenchNode, bench_node, rest, timed_ms
from figures import Samples, table
from msgspec.structs import replace
from quiet_host import QuietHost, quiet_host

from hawker.guest import hello_path, pilot_path
from hawker.runtime.oci_bundle import OPEN_FILES, ContainerPlacement, oci_config
from hawker.runtime.pilot.rundir import RunDir

_STATE = "/run/hawker-bench-crun"
_WARM_UP = 3
_PLACEMENT = ContainerPlacement(
    pilot=pilot_path(),
    arguments=(),
    environment=(),
    cgroup="/hawker-bench/bare",
    cgroup_namespace=True,
    open_files=min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
)


class BareCrun:
    """`crun run --detach` of a machine's bundle, with the workload in the pilot's place. It is given what one with
    ids of its own cannot get by itself, and is not timed for that: a root that is its own where everybody may pass, and
    a view of the kernel."""

    def __init__(self, host: QuietHost, machine_dir: Path, name: str = "bare") -> None:
        self._host = host
        self._name = name
        self._bundle = Path(mkdtemp(prefix="hawker-bench-bare-"))
        self._bundle.chmod(0o711)
        spec = RunDir(machine_dir / "run").spec()
        assert spec is not None and spec.netns is not None, "the machine runs"
        (self._bundle / "sys").mkdir()
        view = ["mount", "-t", "sysfs", "-o", "nosuid,nodev,noexec", "sysfs", str(self._bundle / "sys")]
        host.run(["nsenter", f"--net={spec.netns}", *view])
        placement = replace(_PLACEMENT, cgroup=f"/hawker-bench/{name}", sys=self._bundle / "sys")
        config = msgspec.json.decode(oci_config(spec, placement))
        config["process"]["args"] = ["/bin/hello", "sleep", "1000"]
        config["mounts"] = [mount for mount in config["mounts"] if not mount["destination"].startswith("/.hawker")]
        config["root"]["path"] = str(self._bundle / "rootfs")
        (self._bundle / "config.json").write_bytes(msgspec.json.encode(config))
        self._make_root(spec.first_id or 0)

    def _make_root(self, owner: int) -> None:
        hello = self._bundle / "rootfs/bin/hello"
        hello.parent.mkdir(parents=True)
        hello.write_bytes(hello_path().read_bytes())
        hello.chmod(0o755)
        for path in (hello, hello.parent, hello.parent.parent):
            os.chown(path, owner, owner)

    def start_ms(self) -> float:
        ms = self.start()
        self.remove()
        return ms

    def start(self) -> float:
        return self._host.run(["crun", "--root", _STATE, "run", "--detach", "-b", str(self._bundle), self._name]).ms

    def remove(self) -> None:
        self._host.run(["crun", "--root", _STATE, "delete", "--force", self._name])

    def close(self) -> None:
        self._host.run(["umount", str(self._bundle / "sys")])
        shutil.rmtree(self._bundle)


def _start(node: BenchNode, machine: str) -> None:
    node.act(machine, "start")
    node.wait(machine, "started")


def main(rounds: int) -> None:
    with bench_node("--driver", "container") as node:
        machine = node.create()
        node.wait(machine, "started")
        with quiet_host() as host:  # only now, so that it sees the machine's network namespace
            rows = _measure(node, machine, host, rounds + _WARM_UP)
    samples = [Samples(name, ms[_WARM_UP:]) for name, ms in rows.items()]
    print(table(samples, samples[_COLD_CRUN]))


_ROWS = ("hawker: start call to `started`, cold", "bare `crun run`, cold", "bare `crun run`, warm")
_COLD_CRUN = 1


def _measure(node: BenchNode, machine: str, host: QuietHost, rounds: int) -> dict[str, list[float]]:
    crun = BareCrun(host, node.data_dir / "machines" / machine)
    hawker_ms, cold_ms, warm_ms = _ROWS
    found: dict[str, list[float]] = {name: [] for name in _ROWS}
    for _ in range(rounds):
        node.act(machine, "stop")
        node.wait(machine, "stopped")
        rest()
        found[hawker_ms].append(timed_ms(_start, node, machine))
        rest()
        found[cold_ms].append(crun.start_ms())
        found[warm_ms].append(crun.start_ms())
    crun.close()
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
