from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.config import MachineConfig
from hawker.config.container_rules import containers, volumes

CHECK = {"name": "up", "tcp": {"port": 80}}


def complaints(**config: Any) -> list[str]:
    found = msgspec.convert(config, MachineConfig)
    return [*containers(found), *volumes(found)]


def of_one(**container: Any) -> list[str]:
    other = {"name": "db", "image": "postgres"}
    return complaints(containers=[{"name": "web", "image": "nginx", **container}, other], volumes=[_volume()])


def _volume(**temp_dir: Any) -> dict[str, Any]:
    return {"name": "shared", "temp_dir": {"size_mb": 16, **temp_dir}}


def test_containers_may_be_all_that_the_contract_says() -> None:
    web = {
        "name": "web",
        "depends_on": [{"name": "db", "condition": "healthy"}, {"name": "init", "condition": "exited_successfully"}],
        "healthchecks": [
            {"http": {"port": 80, "path": "/", "scheme": "https", "headers": [{"name": "A", "values": ["1"]}]}},
            {"name": "file", "exec": {"command": ["test", "-e", "/up"]}, "unhealthy": "stop", "kind": "liveness"},
        ],
        "mounts": [{"name": "shared", "path": "/shared"}],
        "restart": {"policy": "always"},
        "stop": {"signal": "SIGTERM", "timeout": "10s"},
    }
    db = {"name": "db", "image": "postgres", "healthchecks": [{**CHECK, "interval": 1, "failure_threshold": 3}]}
    init = {"name": "init", "image": "busybox", "restart": {"policy": "no"}}
    assert complaints(image="nginx", containers=[web, db, init], volumes=[_volume(storage_type="memory")]) == []


def test_a_mount_with_two_slashes_in_front_is_taken_as_machines_have_it() -> None:
    assert of_one(mounts=[{"name": "shared", "path": "//data"}]) == []


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "containers[0].name must be"),
    ({"name": "Web"}, "containers[0].name must be"),
    ({"name": "a" * 17}, "containers[0].name must be"),
    ({"name": "../a"}, "containers[0].name must be"),
    ({"name": "-a"}, "containers[0].name must be"),
    ({"image": None}, "containers[0].image is required"),
    ({"image": "a b"}, "containers[0].image has a space"),
    ({"cmd": ["\0"]}, "containers[0] has a zero byte"),
    ({"env": {"=": ""}}, "containers[0].env"),
    ({"files": [{"guest_path": "a"}]}, "containers[0].files[0].guest_path"),
    ({"restart": {"policy": "spot-price"}}, "containers[0].restart.policy"),
    ({"stop": {"timeout": "1h"}}, "containers[0].stop.timeout"),
    ({"depends_on": [{"name": "nope"}]}, "containers[0].depends_on[0].name: there is no container 'nope'"),
    ({"depends_on": [{"name": "db", "condition": "healthy"}]}, "containers[0].depends_on[0].condition: db has no"),
    ({"depends_on": [{"name": "web"}]}, "containers: web depend on each other in a circle"),
    ({"mounts": [{"name": "nope", "path": "/a"}]}, "containers[0].mounts[0].name: there is no volume 'nope'"),
    ({"mounts": [{"name": "shared", "path": "a"}]}, "containers[0].mounts[0].path must be"),
    ({"mounts": [{"name": "shared", "path": "/proc/1"}]}, "containers[0].mounts[0].path: '/proc/1' is the kernel's"),
    ({"mounts": [{"name": "shared", "path": "/a"}] * 2}, "containers[0].mounts[1].path: '/a' is taken"),
    ({"healthchecks": [CHECK, CHECK]}, "containers[0].healthchecks: two of them"),
    ({"healthchecks": [{"name": "a"}]}, "containers[0].healthchecks[0].needs exactly one"),
    ({"healthchecks": [{**CHECK, "exec": {"command": ["a"]}}]}, "containers[0].healthchecks[0].needs exactly one"),
    ({"healthchecks": [{**CHECK, "interval": -1}]}, "containers[0].healthchecks[0].interval must be"),
    ({"healthchecks": [{**CHECK, "timeout": 301}]}, "containers[0].healthchecks[0].timeout must be"),
    ({"healthchecks": [{**CHECK, "failure_threshold": 101}]}, "containers[0].healthchecks[0].failure_threshold"),
    ({"healthchecks": [{"tcp": {"port": 0}}]}, "containers[0].healthchecks[0].tcp.port must be"),
    ({"healthchecks": [{"http": {"port": 1, "path": "a"}}]}, "containers[0].healthchecks[0].http.path must"),
    ({"healthchecks": [{"http": {"port": 1, "method": "G T"}}]}, "containers[0].healthchecks[0].http.method is"),
    ({"healthchecks": [{"exec": {"command": []}}]}, "containers[0].healthchecks[0].exec.command is empty"),
    ({"healthchecks": [{**CHECK, "name": "\n"}]}, "containers[0].healthchecks[0].name must be"),
]


@pytest.mark.parametrize(("given", "complaint"), REFUSED, ids=[text for _, text in REFUSED])
def test_a_container_that_cannot_be_is_refused_by_its_path(given: dict[str, Any], complaint: str) -> None:
    assert any(found.startswith(complaint) for found in of_one(**given)), of_one(**given)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"processes": [{"cmd": ["a"]}]}, "processes: "),
        ({"init": {"cmd": ["a"]}}, "init: "),
        ({"files": [{"guest_path": "/a"}]}, "files: "),
        ({"mounts": [{"volume": "v"}]}, "mounts are not served"),
    ],
)
def test_an_option_that_needs_a_root_of_the_machines_own_is_refused_beside_containers(
    given: Any, complaint: str
) -> None:
    (found,) = complaints(containers=[{"name": "a", "image": "i"}], **given)
    assert found.startswith(complaint)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"name": "v"}, "volumes[0].temp_dir is required"),
        (_volume(size_mb=None), "volumes[0].temp_dir.size_mb must be between 1 and"),
        (_volume(size_mb=0), "volumes[0].temp_dir.size_mb must be between 1 and"),
        (_volume(size_mb=257, storage_type="memory"), "volumes[0].temp_dir.size_mb must be between 1 and 256, which"),
        ({**_volume(), "name": "/"}, "volumes[0].name must be"),
    ],
)
def test_a_volume_is_bounded(given: dict[str, Any], complaint: str) -> None:
    (found,) = complaints(containers=[{"name": "a", "image": "i"}], volumes=[given])
    assert found.startswith(complaint)


def test_volumes_need_containers() -> None:
    assert complaints(image="i", volumes=[_volume()])[0].startswith("volumes are shared by containers")


def test_a_dependency_on_the_success_of_what_always_runs_is_refused() -> None:
    web = {"name": "web", "image": "i", "depends_on": [{"name": "a", "condition": "exited_successfully"}]}
    (found,) = complaints(containers=[web, {"name": "a", "image": "i", "restart": {"policy": "always"}}])
    assert found.startswith("containers[0].depends_on[0].condition: a is started again")


def test_the_same_name_twice_is_refused() -> None:
    found = complaints(containers=[{"name": "a", "image": "i"}] * 2)
    assert found == ["containers[1].name: 'a' is taken by another one"]


def test_too_many_are_refused() -> None:
    many = [{"name": f"c{number}", "image": "i"} for number in range(17)]
    assert complaints(containers=many) == ["containers has more than 16 items"]


def test_files_of_all_containers_are_bounded_together() -> None:
    file = {"guest_path": "/a", "raw_value": "A" * 800_000}
    (found,) = complaints(containers=[{"name": each, "image": "i", "files": [file]} for each in ("a", "b")])
    assert found.startswith("containers: their files are larger")


@given(edges=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_exactly_the_circles_are_found(edges: list[tuple[int, int]]) -> None:
    needs: dict[int, list[int]] = {number: [to for at, to in edges if at == number] for number in range(6)}
    given = [
        {"name": f"c{number}", "image": "i", "depends_on": [{"name": f"c{to}"} for to in on]}
        for number, on in needs.items()
    ]
    found = complaints(containers=given)
    assert [text for text in found if "circle" in text] == found
    assert bool(found) == any(_reaches(needs, on, number) for number, each in needs.items() for on in each)


def _reaches(needs: dict[int, list[int]], start: int, wanted: int) -> bool:
    seen, ahead = {start}, [start]
    while ahead:
        new = set(needs[ahead.pop()]) - seen
        seen |= new
        ahead += new
    return wanted in seen
