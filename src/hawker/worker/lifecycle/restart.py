"""Flow `restart`: as `stop`, then as `start`, without letting go of the machine's room in between."""

from hawker.fsm.contract import Flow
from hawker.worker.lifecycle.start import LAUNCHING, mark_failed
from hawker.worker.lifecycle.stop import HALT, RestartInput

RESTART = Flow(name="restart", input=RestartInput, steps=(HALT, *LAUNCHING), on_end=mark_failed)
