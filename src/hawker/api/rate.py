"""How often a call may be made. The numbers are the contract's; a row of the route table names its class."""

from enum import Enum

from hawker.token_bucket import Allowance


class Rate(Enum):
    """The classes. `NONE` is for calls of our own, which no client of the Machines API makes."""

    USUAL = Allowance(1.0, 3)
    LOOK = Allowance(5.0, 10)  # at one machine
    APP_DELETION = Allowance(100 / 60, 100)  # of all apps together
    NONE = Allowance(0.0, 0)
