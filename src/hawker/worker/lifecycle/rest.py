"""Flow `rest`: tidy up after a machine that ended by itself and is not to be started again."""

import msgspec

from hawker.fsm.contract import Flow
from hawker.worker.lifecycle.stop import RELEASE


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing to say: the machine's record has it all."""


REST = Flow(name="rest", input=Rest, steps=(RELEASE,))
