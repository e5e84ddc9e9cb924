import pytest

from hawker.cli import config_notation
from hawker.cli.config_notation import PublishedPort
from hawker.config import MachineCheck, MachineRestart
from hawker.config.machine import Mount


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no", MachineRestart(policy="no")),
        ("never", MachineRestart(policy="no")),
        ("always", MachineRestart(policy="always")),
        ("on-failure", MachineRestart(policy="on-failure")),
        ("on-failure:3", MachineRestart(policy="on-failure", max_retries=3)),
    ],
)
def test_restart_policies(text: str, expected: MachineRestart) -> None:
    assert config_notation.restart(text) == expected


@pytest.mark.parametrize("text", ["", "sometimes", "on-failure:", "on-failure:x", "no:-1"])
def test_other_restart_policies_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="on-failure:RETRIES"):
        config_notation.restart(text)


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("tcp:5432", "tcp-5432", MachineCheck(type="tcp", port=5432)),
        ("http:80", "http-80", MachineCheck(type="http", port=80, path="/")),
        ("http:8080/ready?a=b", "http-8080", MachineCheck(type="http", port=8080, path="/ready?a=b")),
        ("https:443/", "https-443", MachineCheck(type="http", port=443, path="/", protocol="https")),
        (
            "web=tcp:1,interval=5,timeout=1m30s,grace=0.5",
            "web",
            MachineCheck(type="tcp", port=1, interval="5s", timeout="1m30s", grace_period="500ms"),
        ),
    ],
)
def test_checks(text: str, name: str, expected: MachineCheck) -> None:
    named = config_notation.check(text)
    assert (named.name, named.check) == (name, expected)


@pytest.mark.parametrize("text", ["", "tcp", "tcp:x", "tcp:80/", "udp:53", "http:80,often=5", "http:80,interval=x"])
def test_a_text_that_is_no_check_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a check|none of interval|not a duration"):
        config_notation.check(text)


def test_durations_are_written_as_go_writes_them() -> None:
    assert config_notation.duration("90") == config_notation.duration("1m30s") == "1m30s"


def test_a_volume_is_mounted_by_name_or_by_id() -> None:
    assert config_notation.mount("data:/var/lib/data") == Mount(name="data", path="/var/lib/data")
    assert config_notation.mount("vol_0123456789abcdef:/data") == Mount(volume="vol_0123456789abcdef", path="/data")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8080", PublishedPort("*", 8080, 8080)),
        ("8080:80", PublishedPort("*", 8080, 80)),
        ("127.0.0.1:8080:80", PublishedPort("127.0.0.1", 8080, 80)),
        ("[::1]:8080:80", PublishedPort("::1", 8080, 80)),
        ("8080:80/http", PublishedPort("*", 8080, 80, ("http",))),
        ("5432:5432/tcp", PublishedPort("*", 5432, 5432)),
        ("53:5353/udp", PublishedPort("*", 53, 5353, udp=True)),
    ],
)
def test_a_port_is_published_as_docker_users_write_it(text: str, expected: PublishedPort) -> None:
    assert config_notation.published(text) == expected


@pytest.mark.parametrize("text", ["", "x", "80:", ":80", "host:80:80", "1.2.3:80:80", "80/", "80:80:80:80"])
def test_a_text_that_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a port|IPv4|does not appear"):
        config_notation.published(text)


def test_a_port_of_udp_has_no_handlers() -> None:
    with pytest.raises(ValueError, match="handlers are for TCP"):
        config_notation.published("53:53/udp+tls")


@pytest.mark.parametrize("text", ["data", "data:", "data:relative", ":/data", "/data"])
def test_a_text_that_is_no_mount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="VOLUME:/path"):
        config_notation.mount(text)


@pytest.mark.parametrize(
    ("text", "said"), [("/srv:/srv", "hawker cp"), ("./x:/x", "hawker cp"), ("data:/d:ro", "leave out :ro")]
)
def test_a_mount_as_docker_has_it_and_hawker_not_is_explained(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        config_notation.mount(text)
