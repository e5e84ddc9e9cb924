"""Facts about what may be said of GPUs in a config."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from hawker.config import MachineConfig
from hawker.config.rules import demand_of, gpus, validate
from hawker.errors import Unprocessable
from hawker.gpu import Demand
from hawker.runtime.driver import Features

ABLE = Features(rootfs=True, network=True, limits=True, kernel=True, lacks_swap="", driver="able", gpus=True)


def _config(**guest: Any) -> MachineConfig:
    return msgspec.convert({"image": "i", "guest": guest}, MachineConfig)


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({}, None),
        ({"gpu_kind": None, "gpus": None}, None),
        ({"gpu_kind": "", "gpus": 0}, None),
        ({"gpu_kind": "a10"}, Demand(kind="a10", count=1)),
        ({"gpu_kind": "a10", "gpus": 1}, Demand(kind="a10", count=1)),
        ({"gpu_kind": "a100-sxm4-80gb", "gpus": 8}, Demand(kind="a100-sxm4-80gb", count=8)),
    ],
)
def test_a_kind_without_a_number_is_one_device(given: dict[str, Any], asked: Demand | None) -> None:
    assert demand_of(_config(**given)) == asked
    assert list(gpus(_config(**given))) == []
    validate(_config(**given), ABLE)


def test_a_config_without_a_size_asks_for_none() -> None:
    assert demand_of(MachineConfig(image="i")) is None and not list(gpus(MachineConfig(image="i")))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"gpus": 1}, "guest.gpus"),
        ({"gpu_kind": "A 10"}, "guest.gpu_kind"),
        ({"gpu_kind": "a10", "gpus": 0}, "guest.gpus"),
        ({"gpu_kind": "a10", "gpus": -1}, "guest.gpus"),
        ({"gpu_kind": "a10", "gpus": 17}, "guest.gpus"),
        ({"gpu_kind": "a10", "memory_mb": 512, "max_memory_mb": 1024}, "guest.max_memory_mb"),
    ],
)
def test_a_senseless_request_is_refused_by_name(given: dict[str, Any], named: str) -> None:
    with pytest.raises(Unprocessable, match=f"^config.{named}"):
        validate(_config(**given), ABLE)


def test_only_a_driver_that_can_serves_them() -> None:
    with pytest.raises(Unprocessable, match=r"^config.guest.gpu_kind is not served by this node's driver \(qemu\)"):
        validate(_config(gpu_kind="a10"), replace(ABLE, gpus=False, driver="qemu"))
    validate(_config(gpus=0), replace(ABLE, gpus=False))
