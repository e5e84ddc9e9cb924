import msgspec
import pytest

from hawker.config import File, MachineConfig, MachineProcess, MachineRestart, StopConfig
from hawker.config.machine import EnvFrom, MachineSecret
from hawker.config.process_rules import (
    files_complaints,
    image_complaints,
    in_files,
    in_processes,
    path_complaints,
    raw_bytes,
    restart_complaints,
    run_complaints,
    signal_name,
    signal_number,
    stop_complaints,
)


@pytest.mark.parametrize("value", ["SIGTERM", "TERM", "term", "sigterm", 15, "15"])
def test_a_signal_is_named_in_every_way_that_clients_use(value: str | int) -> None:
    assert signal_number(value) == 15 and signal_name(value) == "SIGTERM"


@pytest.mark.parametrize("value", ["", "SIG", "SIGNOPE", 0, -1, 4096, "٩", "9 ", "SIG_IGN"])
def test_a_text_that_is_no_signal_is_refused(value: str | int) -> None:
    with pytest.raises(ValueError, match="is not a signal"):
        signal_number(value)


def test_each_secret_that_a_config_names_is_found_with_its_place() -> None:
    config = msgspec.convert(
        {
            "files": [{"guest_path": "/a", "raw_value": "aa=="}, {"guest_path": "/b", "secret_name": "CERT"}],
            "processes": [{}, {"secrets": [{"env_var": "MINE", "name": "KEY"}, {"env_var": "PLAIN"}]}],
        },
        MachineConfig,
    )
    assert list(in_files(config)) == [("files[1].secret_name", "CERT")]
    assert list(in_processes(config)) == [("processes[1].secrets[0]", "KEY"), ("processes[1].secrets[1]", "PLAIN")]


def test_a_config_without_them_names_none() -> None:
    assert [*in_files(MachineConfig()), *in_processes(MachineConfig())] == []


def test_secrets_of_containers_are_found_too() -> None:
    container = {"files": [{"guest_path": "/a", "secret_name": "CERT"}], "secrets": [{"env_var": "KEY"}]}
    config = msgspec.convert({"containers": [{}, container]}, MachineConfig)
    assert list(in_files(config)) == [("containers[1].files[0].secret_name", "CERT")]
    assert list(in_processes(config)) == [("containers[1].secrets[0]", "KEY")]


@pytest.mark.parametrize("image", ["nginx", "a/b:c", "r.example:5000/a@sha256:00"])
def test_the_name_of_an_image_is_taken(image: str) -> None:
    assert list(image_complaints("image", image)) == []


@pytest.mark.parametrize("image", [None, "", "a b", "a\n", "a" * 1025])
def test_a_process_that_names_no_image_opens_its_complaint_with_the_path(image: str | None) -> None:
    (complaint,) = image_complaints("containers[0].image", image)
    assert complaint.startswith("containers[0].image ")


@pytest.mark.parametrize(
    ("runs", "path"),
    [
        (MachineProcess(cmd=("a\0",)), "p"),
        (MachineProcess(exec=("x" * 200_000,)), "p"),
        (MachineProcess(user="\0"), "p.user"),
        (MachineProcess(env={"A=": ""}), "p.env"),
        (MachineProcess(env={"A": "\0"}), "p.env.A"),
        (MachineProcess(secrets=(MachineSecret(name="A"),)), "p.secrets[0]"),
        (MachineProcess(env_from=(EnvFrom(env_var="A"),)), "p.env_from[0]"),
    ],
)
def test_each_field_of_what_runs_is_complained_of_by_its_path(runs: MachineProcess, path: str) -> None:
    (complaint,) = run_complaints("p", runs)
    assert complaint.startswith(path)


@pytest.mark.parametrize("path", ["", "/", "a", "/a/", "/a/../b", "/a//b", "///a", "/a\0"])
def test_a_path_inside_is_absolute_and_plain(path: str) -> None:
    assert list(path_complaints("path", path))


def test_a_path_with_two_slashes_in_front_is_taken_as_machines_have_it() -> None:
    assert list(files_complaints("files", (File(guest_path="//etc/x"),))) == []


def test_files_are_counted_by_what_they_decode_to() -> None:
    assert raw_bytes([File(raw_value="aGlo"), File(secret_name="A")]) == 3


def test_a_file_is_complained_of_by_its_place() -> None:
    (complaint,) = files_complaints("files", (File(guest_path="/a"), File(guest_path="b")))
    assert complaint.startswith("files[1].guest_path")


def test_a_policy_after_an_end_is_bounded() -> None:
    assert list(restart_complaints("restart", MachineRestart(policy="spot-price")))
    assert list(restart_complaints("restart", MachineRestart(max_retries=-1)))
    assert list(stop_complaints("stop", StopConfig(signal="SIGNOPE")))
    assert list(stop_complaints("stop", StopConfig(timeout="1h")))
    assert not list(stop_complaints("stop", StopConfig(signal="TERM", timeout="5s")))
