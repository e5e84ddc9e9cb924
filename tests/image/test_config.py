"""Facts about image configs."""

import pytest

from hawker.image.config import ImageConfig, read_config
from hawker.image.failure import BadImage

_FULL = b"""{"os": "linux", "architecture": "arm64", "variant": "v8", "created": "2024-01-01T00:00:00Z",
 "config": {"Env": ["A=1", "B=2=3"], "Entrypoint": ["/bin/run"], "Cmd": ["a", "b"], "User": "1000:1000",
            "WorkingDir": "/srv", "ExposedPorts": {"80/tcp": {}}, "StopSignal": "SIGQUIT", "Labels": {"x": "y"},
            "OnBuild": null, "Healthcheck": {"Test": ["NONE"]}},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:1", "sha256:2"]}, "history": []}"""


def test_config_is_read() -> None:
    found = read_config(_FULL)
    assert found.run == ImageConfig(
        env=("A=1", "B=2=3"),
        entrypoint=("/bin/run",),
        cmd=("a", "b"),
        user="1000:1000",
        working_dir="/srv",
        exposed_ports=("80/tcp",),
        stop_signal="SIGQUIT",
        labels={"x": "y"},
    )
    assert (found.os, found.architecture, found.variant) == ("linux", "arm64", "v8")
    assert found.diff_ids == ("sha256:1", "sha256:2")


@pytest.mark.parametrize(
    "content", [b"{}", b'{"config": null}', b'{"config": {"Env": null, "Cmd": null, "Labels": null}}']
)
def test_field_that_is_left_out_is_empty(content: bytes) -> None:
    assert read_config(content).run == ImageConfig()


def test_bare_string_is_one_word() -> None:
    assert read_config(b'{"config": {"Cmd": "sh"}}').run.cmd == ("sh",)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"config": {"Env": "A=1"}}', b"\xff"])
def test_unreadable_config_is_refused(content: bytes) -> None:
    with pytest.raises(BadImage, match="config cannot be read"):
        read_config(content)
