"""How long a new machine of a cached image takes, from the API call to `started`, beside `podman run --detach` of the
same program. Interleaved in one run, the host at rest for 0.15 s before each, and podman also warm, right after itself;
prints the table of docs/benchmarks.md.

    python bench/create.py [rounds]
"""

import subprocess
import sys
from pathlib import Path

from bench_node import BenchNode, bench_node, rest, timed_ms
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
        ms = self.run(name)
        self._host.run([*self._podman, "rm", "--force", "--time", "0", name])
        return ms

    def run(self, name: str) -> float:
        """A container that stays; how long its start took, in ms."""
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
        run = [*self._podman, "run", "--detach", "--network", "none", "--memory", "256m", *limits, "--name", name]
        return self._host.run([*run, "hello"]).ms

    def list_ms(self) -> float:
        return self._host.run([*self._podman, "ps"]).ms

    def close(self) -> None:
        self._host.run([*self._podman, "rm", "--all", "--force", "--time", "0"])
        self._host.run([*self._podman, "system", "reset", "--force"])


def _create(node: BenchNode) -> str:
    machine = node.create()
    node.wait(machine, "started")
    return machine


def main(rounds: int) -> None:
    with bench_node("--driver", "container") as node, quiet_host() as host:
        podman = Podman(host, node.data_dir / "podman")
        hawker_ms, cold_ms, warm_ms = [], [], []
        for number in range(rounds + 3):
            made: list[str] = []
            rest()
            hawker_ms.append(timed_ms(lambda made=made: made.append(_create(node))))
            node.destroy(made[0])
            rest()
            cold_ms.append(podman.create_ms(f"cold-{number}"))
            warm_ms.append(podman.create_ms(f"warm-{number}"))
        podman.close()
    cold, warm = Samples("`podman run -d`, cold", cold_ms[3:]), Samples("`podman run -d`, warm", warm_ms[3:])
    print(table([Samples("hawker: create call to `started`, cold", hawker_ms[3:]), cold, warm], cold))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
