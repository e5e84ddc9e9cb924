"""How long a new machine of a cached image takes, from the API call to `started`, beside `podman run --detach` of the
same program. Interleaved in one run; prints the table of docs/benchmarks.md.

    python bench/create.py [rounds]
"""

import subprocess
import sys
from pathlib import Path

from bench_node import BenchNode, bench_node, timed_ms
from figures import Samples, table
from quiet_host import QuietHost, quiet_host

from hawker.guest import hello_path


class Podman:
    """A storage of its own below `directory`. Its network is the simplest that podman has: none."""

    def __init__(self, host: QuietHost, directory: Path) -> None:
        self._host = host
        self._podman = ["podman", "--root", f"{directory}/root", "--runroot", f"{directory}/run"]
        self._podman += ["--cgroup-manager", "cgroupfs", "--events-backend", "none"]
        (directory / "rootfs" / "bin").mkdir(parents=True)
        program = directory / "rootfs" / "bin" / "hello"
        program.write_bytes(hello_path().read_bytes())
        program.chmod(0o755)
        archive = directory / "rootfs.tar"
        subprocess.run(["tar", "-C", str(directory / "rootfs"), "-cf", str(archive), "."], check=True)
        change = ["--change", 'ENTRYPOINT ["/bin/hello"]']
        host.run([*self._podman, "import", *change, str(archive), "hello"])

    def create_ms(self, name: str) -> float:
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
        run = [*self._podman, "run", "--detach", "--network", "none", "--memory", "256m", *limits, "--name", name]
        ms = self._host.run([*run, "hello"]).ms
        self._host.run([*self._podman, "rm", "--force", "--time", "0", name])
        return ms

    def close(self) -> None:
        self._host.run([*self._podman, "system", "reset", "--force"])


def _create(node: BenchNode) -> str:
    machine = node.create()
    node.wait(machine, "started")
    return machine


def main(rounds: int) -> None:
    with bench_node("--driver", "container") as node, quiet_host() as host:
        podman = Podman(host, node.data_dir / "podman")
        hawker_ms, podman_ms = [], []
        for number in range(rounds + 3):
            made: list[str] = []
            hawker_ms.append(timed_ms(lambda made=made: made.append(_create(node))))
            node.destroy(made[0])
            podman_ms.append(podman.create_ms(f"peer-{number}"))
        podman.close()
    peer = Samples("`podman run -d`", podman_ms[3:])
    print(table([Samples("hawker: create call to `started`", hawker_ms[3:]), peer], peer))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
