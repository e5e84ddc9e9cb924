from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hawker.cli.config_notation import check
from hawker.cli.machine_config import Flags
from hawker.cli.machine_options import PlacementOptions, machine_options, placement_options, sources
from hawker.cli.notation import LocalFile, Variable
from hawker.config import MachineRestart


def flags_of(*words: str) -> Flags:
    seen: list[Flags] = []

    @click.command()
    @machine_options
    def command(flags: Flags) -> None:
        seen.append(flags)

    result = CliRunner().invoke(command, words, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return seen[0]


def test_nothing_given_is_no_flags() -> None:
    assert flags_of() == Flags()


def test_every_option_is_read_as_what_it_means() -> None:
    assert flags_of(
        *("-e", "A=1", "--env", "B", "--env-file", "x", "--unset-env", "C"),
        *("--cpus", "2", "--cpu-kind", "shared", "--memory", "1g", "--vm-size", "shared-cpu-2x"),
        *("--restart", "on-failure:3", "--rm", "--entrypoint", "sh -c", "-u", "web", "-f", "/a=b"),
        *("--metadata", "a=b", "--check", "tcp:1", "--stop-signal", "TERM", "--stop-timeout", "30", "--config", "c"),
    ) == Flags(
        env=(Variable("A", "1"), Variable("B")),
        env_file=("x",),
        unset_env=("C",),
        cpus=2,
        cpu_kind="shared",
        memory=1024,
        vm_size="shared-cpu-2x",
        restart=MachineRestart(policy="on-failure", max_retries=3),
        rm=True,
        entrypoint=("sh", "-c"),
        user="web",
        file=(LocalFile("/a", "b"),),
        metadata=(("a", "b"),),
        check=(check("tcp:1"),),
        stop_signal="TERM",
        stop_timeout="30s",
        config="c",
    )


def test_an_unknown_preset_is_wrong_usage() -> None:
    with pytest.raises(click.BadParameter, match="huge"):
        flags_of("--vm-size", "huge")


def test_second_volume_is_refused_for_a_machine_has_one_at_most() -> None:
    volume = flags_of("-v", "data:/data").volume
    assert volume is not None and volume.path == "/data"
    with pytest.raises(click.BadParameter, match="at most one volume, not one each at /data and /logs"):
        flags_of("-v", "data:/data", "--volume", "logs:/logs")


def test_sources_are_this_process_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(b"\xff")
    monkeypatch.setenv("HERE", "1")
    assert sources().read(str(tmp_path / "x")) == b"\xff"
    assert sources().environ["HERE"] == "1"


def test_gathered_options_keep_their_order_in_the_help() -> None:
    @click.command()
    @placement_options
    def command(placement: PlacementOptions) -> None: ...

    text = CliRunner().invoke(command, ["--help"]).output
    places = [text.index(flag) for flag in ("--app", "--name", "--region", "--order-id")]
    assert places == sorted(places)
