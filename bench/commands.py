"""How long a command takes, from its start to its end: `hawker machine list` with three machines that run, without an
option and with one, which takes the tree of commands, beside `podman ps` with three containers; and `hawker --help`,
beside a Python that does nothing. Interleaved in one run.

    python bench/commands.py [rounds]
"""

import os
import subprocess
import sys
from pathlib import Path

from bench_node import NO_BYTECODE, BenchNode, bench_node, timed_ms
from create import Podman
from figures import Samples, table
from quiet_host import quiet_host

_HAWKER = str(Path(sys.executable).with_name("hawker"))
_MACHINES = 3
_WARM_UP = 3


def _command_ms(node: BenchNode, *command: str) -> float:
    environment = {**os.environ, "HAWKER_DATA_DIR": str(node.data_dir)}
    environment.pop(NO_BYTECODE, None)
    return timed_ms(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment))


def main(rounds: int) -> None:
    listed, chosen, helped, python, podman_ms = [], [], [], [], []
    with bench_node("--driver", "container") as node, quiet_host() as host:
        podman = Podman(host, node.data_dir / "podman")
        for number in range(_MACHINES):
            node.wait(node.create(), "started")
            podman.run(f"peer-{number}")
        for _ in range(rounds + _WARM_UP):
            listed.append(_command_ms(node, _HAWKER, "machine", "list"))
            chosen.append(_command_ms(node, _HAWKER, "machine", "list", "--all"))
            podman_ms.append(podman.list_ms())
            helped.append(_command_ms(node, _HAWKER, "--help"))
            python.append(_command_ms(node, sys.executable, "-c", "pass"))
        podman.close()
    peer, nothing = Samples("`podman ps`", podman_ms[_WARM_UP:]), Samples("`python -c pass`", python[_WARM_UP:])
    lists = [Samples("`hawker machine list`", listed[_WARM_UP:]), Samples("the same `--all`", chosen[_WARM_UP:])]
    print(table([*lists, peer], peer))
    print(table([Samples("`hawker --help`", helped[_WARM_UP:]), nothing], nothing))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
