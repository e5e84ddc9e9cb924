from typing import Any

import msgspec

from hawker.config import MachineConfig


def test_autostop_is_kept_as_clients_read_it() -> None:
    spellings: dict[Any, Any] = {"off": False, "stop": True, "suspend": "suspend", False: False, True: True}
    for given, kept in spellings.items():
        config = msgspec.convert({"services": [{"internal_port": 1, "autostop": given}]}, MachineConfig)
        assert config.services and config.services[0].autostop == kept
