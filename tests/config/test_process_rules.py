import pytest

from hawker.config import File, MachineProcess, MachineRestart, StopConfig
from hawker.config.process import EnvFrom, MachineSecret
from hawker.config.process_rules import (
    files_complaints,
    image_complaints,
    path_complaints,
    raw_bytes,
    restart_complaints,
    run_complaints,
    stop_complaints,
)


@pytest.mark.parametrize("image", ["nginx", "a/b:c", "r.example:5000/a@sha256:00"])
def test_the_name_of_an_image_is_taken(image: str) -> None:
    assert list(image_complaints("image", image)) == []


@pytest.mark.parametrize("image", [None, "", "a b", "a\n", "a" * 1025])
def test_what_names_no_image_opens_its_complaint_with_the_path(image: str | None) -> None:
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


@pytest.mark.parametrize("path", ["", "/", "a", "/a/", "/a/../b", "/a//b", "/a\0"])
def test_a_path_inside_is_absolute_and_plain(path: str) -> None:
    assert list(path_complaints("path", path))


def test_files_are_counted_by_what_they_decode_to() -> None:
    assert raw_bytes([File(raw_value="aGlo"), File(secret_name="A")]) == 3


def test_a_file_is_complained_of_by_its_place() -> None:
    (complaint,) = files_complaints("files", (File(guest_path="/a"), File(guest_path="b")))
    assert complaint.startswith("files[1].guest_path")


def test_what_follows_an_end_is_bounded() -> None:
    assert list(restart_complaints("restart", MachineRestart(policy="spot-price")))
    assert list(restart_complaints("restart", MachineRestart(max_retries=-1)))
    assert list(stop_complaints("stop", StopConfig(signal="SIGNOPE")))
    assert list(stop_complaints("stop", StopConfig(timeout="1h")))
    assert not list(stop_complaints("stop", StopConfig(signal="TERM", timeout="5s")))
