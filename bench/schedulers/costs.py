"""What things cost in the model. All of it is assumed, is the same for every policy, and stands in the report."""

import msgspec


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """A message takes `delay_s` one way, half of it to one and a half; `loss` is the share of answers that get lost.

    A decision costs `decide_s` and, for each host that is looked at in the scheduler's own memory, `look_s`; a bid that
    is asked for costs the broker `ask_s`. The one table that schedulers share takes a change in `commit_s`. Nobody
    waits longer for a placement than `patience_s`.
    """

    delay_s: float = 0.0005
    loss: float = 0.001
    silence_s: float = 1.0  # without an answer, it is lost
    detect_s: float = 5.0  # until all know that a host is down, or is back
    patience_s: float = 30.0
    decide_s: float = 0.0002
    look_s: float = 0.000001
    ask_s: float = 0.0001
    commit_s: float = 0.0002
    poll_s: float = 1.0
    window: int = 16  # orders of the queue that a worker looks at in one poll
    schedulers: int = 5
    sync_s: float = 0.5  # how old a scheduler's snapshot may be
    conflicts: int = 10  # before a scheduler gives an order up
    brokers: int = 5
    publish_s: float = 1.0  # how often at most a host tells what is left on it
