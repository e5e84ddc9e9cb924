"""Facts about the users that virtual machine monitors run as."""

from hawker.host.vmm_user import FIRST, user_of
from hawker.ids import MachineId


def test_a_machine_has_one_user_for_good() -> None:
    """It owns files: another number after an upgrade would lock a machine out of its own."""
    assert user_of(MachineId("0123456789abcd")) == user_of(MachineId("0123456789abcd")) == 0x71A8EFDD


def test_users_are_spread_over_a_range_that_nobody_else_has() -> None:
    users = {user_of(MachineId(f"{number:014x}")) for number in range(5000)}
    assert len(users) > 4995
    assert min(users) >= FIRST > 0x6FFFFFFF and max(users) < 0x7FFE0000
