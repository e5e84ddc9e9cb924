import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from tests.ports import free_port, free_ports

HOST = "127.0.0.1"


def test_ports_are_different_and_none_is_one_that_the_kernel_hands_out() -> None:
    given = [free_port() for _ in range(50)]
    assert len(set(given)) == 50
    assert not set(given) & set(range(32_768, 65_536))
    for port in given:
        with socket.create_server((HOST, port)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.bind((HOST, port))


def test_ports_in_a_row_are_all_free() -> None:
    taken = free_port()
    with socket.create_server((HOST, taken)):
        rows = [range(first, first + 5) for first in (free_ports(5) for _ in range(50))]  # once round its range
    assert not any(taken in row for row in rows)
    assert all(not set(one) & set(other) for one, other in pairwise(rows))


def test_ports_of_another_process_are_not_among_them() -> None:
    program = "from tests.ports import free_port; print(free_port())"
    root = Path(__file__).parents[1]
    theirs = int(subprocess.check_output([sys.executable, "-c", program], cwd=root))
    assert theirs // 250 != free_port() // 250
