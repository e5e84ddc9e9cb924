import pytest

from hawker.clock import SystemClock
from hawker.errors import Fault
from hawker.ids import new_volume_id
from hawker.worker.vault import Vault
from hawker.worker.volumes.keys import KEY_BYTES, VolumeKeys

CLOCK = SystemClock()
KEYS = VolumeKeys(Vault(bytes(32), CLOCK), CLOCK)


def test_each_volume_has_a_key_of_its_own_and_opens_it_again() -> None:
    first, second = (KEYS.new(new_volume_id(CLOCK)) for _ in range(2))
    assert len(KEYS.open(first)) == KEY_BYTES
    assert KEYS.open(first) == KEYS.open(first) != KEYS.open(second)


def test_a_key_opens_under_the_node_s_own_key_only() -> None:
    key = KEYS.new(new_volume_id(CLOCK))
    assert KEYS.open(key).hex() not in repr(key)
    with pytest.raises(Fault, match="put the file `key` of its data directory back"):
        VolumeKeys(Vault(bytes(31) + b"1", CLOCK), CLOCK).open(key)
