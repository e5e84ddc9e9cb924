from typing import Any

import pytest

from hawker.api.contract.exec import ProcessesQuery
from hawker.errors import BadRequest
from hawker.handlers.inside import process_stats
from hawker.runtime.driver import ProcessInfo, ProcessSocket

NOW = 1000.0
WEB = ProcessInfo(
    pid=7,
    started_at=NOW - 100,
    command="web",
    cwd="/srv",
    cpu_s=25.0,
    rss_bytes=10,
    sockets=(ProcessSocket(proto="tcp6", address="[::]:80"),),
)
JOB = ProcessInfo(pid=3, started_at=NOW, command="job", cwd="/", cpu_s=0.0, rss_bytes=20)


def _pids(**query: Any) -> list[int]:
    return [stat.pid for stat in process_stats((WEB, JOB), ProcessesQuery(**query), NOW)]


def test_a_process_is_shown_with_its_use_and_sockets() -> None:
    (stat,) = process_stats((WEB,), ProcessesQuery(), NOW)
    assert (stat.stime, stat.rtime, stat.cpu, stat.rss, stat.directory) == (25, 100, 25, 10, "/srv")
    assert [(socket.proto, socket.address) for socket in stat.listen_sockets] == [("tcp6", "[::]:80")]


def test_a_process_that_has_just_started_has_used_nothing() -> None:
    (stat,) = process_stats((JOB,), ProcessesQuery(), NOW - 1)
    assert (stat.rtime, stat.cpu) == (0, 0)


def test_they_are_sorted_by_pid_unless_asked_otherwise() -> None:
    assert _pids() == [3, 7]
    assert _pids(sort_by="rss", order="desc") == [3, 7]
    assert _pids(sort_by="rss") == [7, 3]


def test_an_order_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadRequest, match="sort_by"):
        _pids(sort_by="listen_sockets")
    with pytest.raises(BadRequest, match="order"):
        _pids(order="up")
