import click

from hawker.api.contract.exec import ProcessStat
from hawker.cli.commands.machine.ps import processes_table
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode, machine


def test_processes_are_listed_with_what_they_listen_on(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    row = hawker("machine", "ps", "web").out.splitlines()[1]
    assert row.split() == ["7", "3", "%", "2.0", "KiB", "61", "s", "tcp:[::]:80", "web"]


def test_processes_of_containers_say_whose_they_are() -> None:
    web = ProcessStat(
        pid=7, stime=0, rtime=61, command="nginx", directory="/", cpu=3, rss=2048, listen_sockets=(), container="web"
    )
    head, row = (line.split() for line in click.unstyle(processes_table([web])).splitlines())
    assert (head[:2], row[:2]) == (["PID", "CONTAINER"], ["7", "web"])
