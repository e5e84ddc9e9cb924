from typing import Any

import msgspec

from hawker.config import MachineCheck, MachineConfig, StopConfig

GIVEN = (
    b'{"image":"nginx","env":{"A":"1"},"init":{},"auto_destroy":false,"files":[],'
    b'"checks":{"web":{"type":"http","port":80,"interval":"15s"}},"services":[],"dns":{"skip_registration":true}}'
)


def test_a_config_is_returned_with_no_key_added_or_dropped() -> None:
    config = msgspec.json.decode(GIVEN, type=MachineConfig)
    assert msgspec.json.decode(msgspec.json.encode(config)) == msgspec.json.decode(GIVEN)


def test_null_means_absent() -> None:
    config = msgspec.json.decode(b'{"image":"nginx","guest":null,"checks":null}', type=MachineConfig)
    assert config == MachineConfig(image="nginx")
    assert msgspec.json.encode(config) == b'{"image":"nginx"}'


def test_integer_nanoseconds_become_the_string_that_clients_read() -> None:
    assert msgspec.json.decode(b'{"timeout":90000000000}', type=StopConfig) == StopConfig(timeout="1m30s")
    assert MachineCheck(interval=15_000_000_000, timeout="1s").interval == "15s"


def test_a_stored_config_with_a_field_of_a_newer_program_is_read() -> None:
    config = msgspec.json.decode(b'{"image":"nginx","invented_later":{"a":1}}', type=MachineConfig)
    assert config.image == "nginx"


def test_autostop_is_kept_as_clients_read_it() -> None:
    spellings: dict[Any, Any] = {"off": False, "stop": True, "suspend": "suspend", False: False, True: True}
    for given, kept in spellings.items():
        config = msgspec.convert({"services": [{"internal_port": 1, "autostop": given}]}, MachineConfig)
        assert config.services and config.services[0].autostop == kept
