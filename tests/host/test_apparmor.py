"""The profile of containers. What a kernel with AppArmor makes of it is not shown: there is none here. What is: when it
is loaded and removed, and by `apparmor_parser` itself, where that is installed, that it can be compiled."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hawker.host.apparmor import AppArmor, profile_text
from hawker.ids import NodeId

ME = NodeId("0badcafe")
NAME = "hawker-0badcafe"


def host(place: Path, *, enabled: str | None = "Y\n", loaded: str = "", status: int = 0) -> AppArmor:
    """With a parser that writes down what it is told."""
    module, profiles = place / "sys/module/apparmor/parameters", place / "sys/kernel/security/apparmor"
    for directory in (module, profiles):
        directory.mkdir(parents=True)
    if enabled is not None:
        (module / "enabled").write_text(enabled)
    (profiles / "profiles").write_text(loaded)
    parser = place / "parser"
    parser.write_text(
        f'#!/bin/sh\necho "$@" >> {place}/said\ncat >> {place}/said\necho no such rule >&2\nexit {status}\n'
    )
    parser.chmod(0o755)
    return AppArmor(ME, place, str(parser))


def said(place: Path) -> str:
    return (place / "said").read_text() if (place / "said").exists() else ""


def test_a_profile_is_given_to_the_kernel_under_the_nodes_name(tmp_path: Path) -> None:
    assert host(tmp_path).load() == NAME
    assert said(tmp_path) == f"--replace --skip-cache\n{profile_text(NAME)}"


@pytest.mark.parametrize("enabled", [None, "N\n"])
def test_a_kernel_without_apparmor_is_left_alone(tmp_path: Path, enabled: str | None) -> None:
    apparmor = host(tmp_path, enabled=enabled, loaded=f"{NAME} (enforce)\n")
    assert apparmor.load() == "" and "no AppArmor" in apparmor.lack()
    apparmor.remove()
    assert said(tmp_path) == ""


def test_without_a_parser_there_is_no_profile_and_the_word_what_to_install(tmp_path: Path) -> None:
    host(tmp_path)
    apparmor = AppArmor(ME, tmp_path, "no-such-parser")
    assert apparmor.load() == "" and "apt-get install apparmor" in apparmor.lack()


def test_a_profile_that_the_kernel_refuses_is_named_by_no_machine(tmp_path: Path) -> None:
    assert host(tmp_path, status=1).load() == ""


def test_a_loaded_profile_is_removed_and_nothing_else(tmp_path: Path) -> None:
    host(tmp_path, loaded=f"docker-default (enforce)\n{NAME} (enforce)\n").remove()
    assert said(tmp_path) == f"--remove --skip-cache\nprofile {NAME} {{ }}\n"


def test_a_profile_not_loaded_is_not_removed(tmp_path: Path) -> None:
    host(tmp_path, loaded=f"{NAME}0 (enforce)\n").remove()
    assert said(tmp_path) == ""


PARSER = shutil.which("apparmor_parser", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


@pytest.mark.skipif(PARSER is None, reason="apparmor_parser is not here: apt-get install apparmor")
@pytest.mark.parametrize("text", [profile_text(NAME), f"profile {NAME} {{ }}\n"])
def test_the_parser_compiles_what_it_is_told(text: str) -> None:
    assert PARSER is not None
    command = [PARSER, "--skip-kernel-load", "--skip-cache"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    broken = subprocess.run(command, input=text[:-3], capture_output=True, text=True, timeout=60, check=False)
    assert broken.returncode != 0


FLOOR = """deny mount|deny /proc/* w|deny /proc/sysrq-trigger rwklx|deny /proc/kcore rwklx|deny /sys/firmware/** rwklx
deny /sys/devices/virtual/powercap/** rwklx|deny /sys/kernel/security/** rwklx|deny /sys/[^f]*/** w
deny /sys/fs/[^c]*/** w|deny /proc/sys/[^k]** w""".replace("\n", "|").split("|")


@pytest.mark.parametrize("rule", FLOOR)
def test_the_profile_refuses_what_those_of_other_runtimes_do(rule: str) -> None:
    path, _, modes = rule.rpartition(" ")
    lines = [line.strip().rstrip(",") for line in profile_text(NAME).splitlines()]
    assert rule in lines or any(line.startswith(f"{path} ") and set(modes) <= set(line.split()[-1]) for line in lines)
