"""What is said of memory, swap, kernels and kept root filesystems, and what a driver cannot do about them."""

from typing import Any

import msgspec
import pytest

from hawker.config import MachineConfig, validate
from hawker.errors import Unprocessable
from hawker.runtime.driver import Features

ABLE = Features(rootfs=True, network=True, limits=True, kernel=True, lacks_swap="", driver="able")
PLAIN = Features(rootfs=False, network=False, limits=False, driver="plain")
PERSISTENT: list[dict[str, Any]] = [
    {"rootfs": {"persist": "always"}},
    {"rootfs": {"persist": "restart"}, "guest": {"persist_rootfs": "never"}},
    *({"guest": {"persist_rootfs": each}} for each in ("restart", "always", 2, 3)),
]


def check(given: dict[str, Any], served: Features = ABLE) -> None:
    validate(msgspec.convert({"image": "nginx", **given}, MachineConfig), served)


@pytest.mark.parametrize(
    "given",
    [
        *PERSISTENT,
        {"guest": {"memory_mb": 256, "max_memory_mb": 1024}},
        {"init": {"swap_size_mb": 512, "kernel_args": ["quiet"]}},
        {"guest": {"kernel_args": ["quiet"]}},
        {"rootfs": {"size_gb": 1}},
        {"rootfs": {"size_gb": 500, "persist": "always"}},
    ],
)
def test_a_size_the_driver_can_do_is_accepted(given: dict[str, Any]) -> None:
    check(given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        *((each, "rootfs.persist is not served by this node's driver .plain.: .* no root filesystem")
          for each in PERSISTENT),
        ({"rootfs": {"size_gb": 1}}, "rootfs.size_gb is not served by .*plain.*: .* no root filesystem"),
        ({"guest": {"max_memory_mb": 1024}}, "guest.max_memory_mb is not served by .*plain.*: .* no limits"),
        ({"init": {"swap_size_mb": 1}}, "init.swap_size_mb is not served by .*plain.*: its machines have no limits"),
        ({"init": {"kernel_args": ["a"]}}, "init.kernel_args is not served by .*plain.*: .* no kernel of their own"),
        ({"guest": {"kernel_args": ["a"]}}, "guest.kernel_args is not served by .*plain.*: .* no kernel of their own"),
    ],
)  # fmt: skip
def test_a_size_the_driver_cannot_do_is_refused_with_its_name(given: dict[str, Any], told: str) -> None:
    with pytest.raises(Unprocessable, match=told):
        check(given, PLAIN)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"guest": {"memory_mb": 512, "max_memory_mb": 256}}, "guest.max_memory_mb must not be below .* 512"),
        ({"guest": {"max_memory_mb": -1}}, "guest.max_memory_mb must not be below"),
        ({"guest": {"max_memory_mb": 2**40}}, "guest.max_memory_mb must be at most 16777216, not 1099511627776"),
        ({"init": {"swap_size_mb": -1}}, "init.swap_size_mb must be between"),
        ({"init": {"swap_size_mb": 10**9}}, "init.swap_size_mb must be between"),
        ({"guest": {"persist_rootfs": "sometimes"}}, "guest.persist_rootfs must be never, restart, always or 0 to 3"),
        ({"rootfs": {"size_gb": -1}}, "rootfs.size_gb must be between 1 and 500, not -1"),
        ({"rootfs": {"size_gb": 501}}, "rootfs.size_gb must be between"),
        ({"guest": {"persist_rootfs": 4}}, "guest.persist_rootfs must be"),
        (
            {"rootfs": {"persist": "always"}, "containers": [{"name": "a", "image": "b"}]},
            "rootfs.persist is not served by this node yet: .* containers",
        ),
    ],
)
def test_a_senseless_size_is_refused_by_name(given: dict[str, Any], told: str) -> None:
    containers = Features(rootfs=True, network=True, limits=True, lacks_swap="", containers=True)
    with pytest.raises(Unprocessable, match=told):
        check(given, containers)
