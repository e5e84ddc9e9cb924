import base64
import hashlib

import click
import pytest

from hawker.cli.config_notation import check, published, restart
from hawker.cli.machine_config import ConfigSources, Flags, configured
from hawker.cli.notation import LocalFile, Variable
from hawker.config import File, Guest, Init, MachineConfig, MachineProcess, MachineRestart, StopConfig
from hawker.config.machine import Mount
from hawker.config.process_rules import MAX_UPLOAD_BYTES

FILES = {
    "env": b"A=file\nHERE\n",
    "bad-env": b"=1\n",
    "config.json": b'{"image": "from/file", "env": {"A": "1"}, "auto_destroy": true}',
    "order.json": b'{"name": "x", "config": {"image": "from/order"}}',
    "odd.json": b'{"image": "x", "colour": "red"}',
    "wrong.json": b'{"image": 3}',
    "list.json": b"[]",
    "data": b"\0\xff",
}


def read(name: str) -> bytes:
    if name not in FILES:
        raise FileNotFoundError(2, "No such file or directory")
    return FILES[name]


SOURCES = ConfigSources(environ={"HERE": "from here"}, read=read)
EMPTY = MachineConfig()


def apply(flags: Flags, before: MachineConfig = EMPTY, image: str | None = None, *command: str) -> MachineConfig:
    return configured(before, flags, SOURCES, image=image, command=command)


def test_no_flags_change_nothing() -> None:
    before = MachineConfig(image="a", env={"A": "1"}, guest=Guest(cpus=2), processes=(MachineProcess(user="u"),))
    assert apply(Flags(), before) == before


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (Flags(env=(Variable("A", "1"), Variable("B", ""))), MachineConfig(env={"A": "1", "B": ""})),
        (Flags(env=(Variable("HERE"), Variable("NOT_HERE"))), MachineConfig(env={"HERE": "from here"})),
        (Flags(env_file=("env",), env=(Variable("A", "2"),)), MachineConfig(env={"A": "2", "HERE": "from here"})),
        (Flags(cpus=2, memory=1024), MachineConfig(guest=Guest(cpus=2, memory_mb=1024))),
        (Flags(memory=0), MachineConfig(guest=Guest(memory_mb=0))),
        (Flags(cpu_kind="performance"), MachineConfig(guest=Guest(cpu_kind="performance"))),
        (Flags(vm_size="shared-cpu-2x"), MachineConfig(size="shared-cpu-2x")),
        (
            Flags(vm_size="performance-1x", memory=4096),
            MachineConfig(size="performance-1x", guest=Guest(cpus=1, cpu_kind="performance", memory_mb=4096)),
        ),
        (Flags(restart=restart("always")), MachineConfig(restart=MachineRestart(policy="always"))),
        (Flags(rm=True), MachineConfig(auto_destroy=True)),
        (Flags(rm=False), MachineConfig(auto_destroy=False)),
        (Flags(entrypoint=("sh", "-c")), MachineConfig(init=Init(entrypoint=("sh", "-c")))),
        (
            Flags(volume=Mount(name="data", path="/data")),
            MachineConfig(mounts=(Mount(name="data", path="/data"),)),
        ),
        (Flags(user="web"), MachineConfig(processes=(MachineProcess(user="web"),))),
        (Flags(metadata=(("a", "b"),)), MachineConfig(metadata={"a": "b"})),
        (Flags(check=(check("tcp:80"),)), MachineConfig(checks={"tcp-80": check("tcp:80").check})),
        (
            Flags(file=(LocalFile("/etc/x", "data"),)),
            MachineConfig(files=(File(guest_path="/etc/x", raw_value=base64.b64encode(b"\0\xff").decode()),)),
        ),
        (
            Flags(stop_signal="TERM", stop_timeout="30s"),
            MachineConfig(stop_config=StopConfig(signal="TERM", timeout="30s")),
        ),
        (Flags(config="order.json"), MachineConfig(image="from/order")),
        (
            Flags(config="config.json", rm=False, env=(Variable("B", "2"),)),
            MachineConfig(image="from/file", env={"A": "1", "B": "2"}, auto_destroy=False),
        ),
    ],
)
def test_a_flag_changes_what_it_names(flags: Flags, expected: MachineConfig) -> None:
    assert apply(flags) == expected


def test_published_ports_become_services_and_the_word_where() -> None:
    config = apply(Flags(publish=(published("8080:80"), published("8443:80/http"), published("53:53"))))
    assert config.metadata == {"hawker_publish": "*"} and config.services is not None
    web, other = config.services
    assert (web.internal_port, [(port.port, port.handlers) for port in web.ports or ()]) == (
        80,
        [(8080, None), (8443, ("http",))],
    )
    assert other.internal_port == 53
    again = apply(Flags(publish=(published("8080:80/http"),)), config)
    assert len((again.services or ())[0].ports or ()) == 2, "a port is there once"
    with pytest.raises(click.BadParameter, match="same address"):
        apply(Flags(publish=(published("8080:80"), published("127.0.0.1:81:81"))))


def test_the_image_and_the_command_are_arguments() -> None:
    assert apply(Flags(), EMPTY, "web:3", "sh", "-c", "x") == MachineConfig(
        image="web:3", init=Init(cmd=("sh", "-c", "x"))
    )


def test_a_command_wins_over_an_exec_that_was_there() -> None:
    before = MachineConfig(init=Init(exec=("old",), tty=True))
    assert apply(Flags(), before, None, "new").init == Init(cmd=("new",), tty=True)


def test_pairs_and_files_are_merged_by_their_keys() -> None:
    before = MachineConfig(
        env={"A": "1", "B": "2"},
        metadata={"x": "1"},
        files=(File(guest_path="/a", raw_value=""), File(guest_path="/b")),
    )
    flags = Flags(
        env=(Variable("B", "3"),), metadata=(("y", "2"),), file=(LocalFile("/a", "data"),), unset_env=("A", "nothing")
    )
    after = apply(flags, before)
    assert (after.env, after.metadata) == ({"B": "3"}, {"x": "1", "y": "2"})
    assert [file.guest_path for file in after.files or ()] == ["/a", "/b"]
    assert after.files is not None and after.files[0].raw_value == "AP8="


def test_every_process_gets_the_user() -> None:
    before = MachineConfig(processes=(MachineProcess(cmd=("a",)), MachineProcess(cmd=("b",), user="root")))
    assert [process.user for process in apply(Flags(user="web"), before).processes or ()] == ["web", "web"]


def test_a_preset_replaces_the_size_that_was_there() -> None:
    before = MachineConfig(guest=Guest(cpus=8, memory_mb=9000, cpu_kind="performance"))
    assert apply(Flags(vm_size="shared-cpu-1x"), before).guest is None
    assert apply(Flags(vm_size="shared-cpu-4x", memory=300), before).guest == Guest(
        cpus=4, cpu_kind="shared", memory_mb=300
    )


def test_a_preset_that_was_there_is_what_a_flag_changes() -> None:
    before = MachineConfig(size="shared-cpu-4x")
    assert apply(Flags(memory=300), before).guest == Guest(cpus=4, cpu_kind="shared", memory_mb=300)


@pytest.mark.parametrize(
    ("flags", "option", "text"),
    [
        (Flags(config="nowhere"), "--config", "cannot read nowhere: No such file"),
        (Flags(config="odd.json"), "--config", "colour is not a known field"),
        (Flags(config="wrong.json"), "--config", "image: expected `str"),
        (Flags(config="list.json"), "--config", "Expected `object`"),
        (Flags(config="data"), "--config", "data: "),
        (Flags(env_file=("nowhere",)), "--env-file", "cannot read nowhere"),
        (Flags(env_file=("bad-env",)), "--env-file", "bad-env: '=1' is not"),
        (Flags(env_file=("data",)), "--env-file", "data: "),
        (Flags(file=(LocalFile("/a", "nowhere"),)), "--file", "cannot read nowhere"),
    ],
)
def test_a_bad_file_is_the_options_fault(flags: Flags, option: str, text: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        apply(flags)
    assert caught.value.param_hint == option
    assert text in caught.value.message


def test_a_file_that_is_too_large_is_named_with_what_to_do() -> None:
    sources = ConfigSources(environ={}, read=lambda name: bytes(MAX_UPLOAD_BYTES + 1))
    flags = Flags(file=(LocalFile("/big", "big.bin"),))
    with pytest.raises(click.BadParameter, match=r"big\.bin is larger than 256 MiB.*hawker cp"):
        configured(MachineConfig(), flags, sources)


def test_files_without_room_in_the_config_are_named_by_digest() -> None:
    contents = {"small": b"small", "big": b"b" * (2 << 20), "late": b"l" * (500 << 10), "later": b"m" * (500 << 10)}
    sources = ConfigSources(environ={}, read=contents.__getitem__)
    given = tuple(LocalFile(f"/{name}", name) for name in ("big", "small", "late", "later"))
    files = configured(EMPTY, Flags(file=given), sources).files or ()
    assert [(each.guest_path, each.size, each.raw_value is None) for each in files] == [
        ("/big", 2 << 20, True),
        ("/small", None, False),
        ("/late", None, False),
        ("/later", 500 << 10, True),
    ]
    assert files[0].digest == f"sha256:{hashlib.sha256(contents['big']).hexdigest()}"
