"""Places where a test may kill the process: `HAWKER_FAILPOINT=create.network.after hawker up`. Free when unset.

`FLOW.STEP.before` is reached before a step is called, `FLOW.STEP.after` when its effect is there and its record is not.
Product code may name further places, such as `create.network.inside`.
"""

import os
import signal

_ARMED = os.environ.get("HAWKER_FAILPOINT")


def reach(name: str) -> None:
    if _ARMED is not None and name == _ARMED:
        os.kill(os.getpid(), signal.SIGKILL)
