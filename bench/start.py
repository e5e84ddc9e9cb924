"""How long a stopped container machine takes to start, from the API call to `started`, beside bare `crun run` of the
same bundle. Interleaved in one run; prints the table of docs/benchmarks.md.

    python bench/start.py [rounds]
"""

import sys
from pathlib import Path

import msgspec
from bench_node import BenchNode, bench_node, timed_ms
from figures import Samples, table
from quiet_host import QuietHost, quiet_host

from hawker.guest import hello_path

_STATE = "/run/hawker-bench-crun"
_WARM_UP = 3


class BareCrun:
    """`crun run --detach` of a machine's bundle, with the workload in the pilot's place."""

    def __init__(self, host: QuietHost, machine_dir: Path, directory: Path) -> None:
        self._host = host
        self._bundle = directory
        config = msgspec.json.decode((machine_dir / "run" / "config.json").read_bytes())
        config["process"]["args"] = ["/bin/hello", "sleep", "1000"]
        config["linux"]["cgroupsPath"] = str(Path(config["linux"]["cgroupsPath"]).with_name("bare"))
        config["mounts"] = [mount for mount in config["mounts"] if not mount["destination"].startswith("/.hawker")]
        rootfs = directory / "rootfs"
        (rootfs / "bin").mkdir(parents=True)
        (rootfs / "bin" / "hello").write_bytes(hello_path().read_bytes())
        (rootfs / "bin" / "hello").chmod(0o755)
        config["root"]["path"] = str(rootfs)
        (directory / "config.json").write_bytes(msgspec.json.encode(config))

    def start_ms(self) -> float:
        ms = self._host.run(["crun", "--root", _STATE, "run", "--detach", "-b", str(self._bundle), "bare"]).ms
        self._host.run(["crun", "--root", _STATE, "delete", "--force", "bare"])
        return ms


def _start(node: BenchNode, machine: str) -> None:
    node.act(machine, "start")
    node.wait(machine, "started")


def main(rounds: int) -> None:
    with bench_node("--driver", "container") as node:
        machine = node.create()
        node.wait(machine, "started")
        with quiet_host() as host:  # only now, so that it sees the machine's network namespace
            hawker_ms, crun_ms = _measure(node, machine, host, rounds + _WARM_UP)
    bare = Samples("bare `crun run`", crun_ms[_WARM_UP:])
    print(table([Samples("hawker: start call to `started`", hawker_ms[_WARM_UP:]), bare], bare))


def _measure(node: BenchNode, machine: str, host: QuietHost, rounds: int) -> tuple[list[float], list[float]]:
    crun = BareCrun(host, node.data_dir / "machines" / machine, node.data_dir / "bare")
    hawker_ms, crun_ms = [], []
    for _ in range(rounds):
        node.act(machine, "stop")
        node.wait(machine, "stopped")
        hawker_ms.append(timed_ms(_start, node, machine))
        crun_ms.append(crun.start_ms())
    return hawker_ms, crun_ms


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
