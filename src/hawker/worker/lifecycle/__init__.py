"""The worker's flows, one file each."""

from typing import Any

from hawker.fsm.contract import Flow
from hawker.worker.lifecycle.archive import ARCHIVE
from hawker.worker.lifecycle.create import CREATE
from hawker.worker.lifecycle.destroy import DESTROY
from hawker.worker.lifecycle.pull import PULL
from hawker.worker.lifecycle.rest import REST
from hawker.worker.lifecycle.restart import RESTART
from hawker.worker.lifecycle.start import START
from hawker.worker.lifecycle.stop import STOP
from hawker.worker.lifecycle.update import UPDATE

FLOWS: tuple[Flow[Any], ...] = (PULL, CREATE, START, STOP, REST, RESTART, UPDATE, DESTROY, ARCHIVE)
