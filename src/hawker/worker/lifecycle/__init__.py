"""The worker's flows, one file each."""

from typing import Any

from hawker.fsm.contract import Flow
from hawker.history.archivist import ARCHIVE
from hawker.volume.flows import (
    VOLUME_BACKUP,
    VOLUME_CREATE,
    VOLUME_DESTROY,
    VOLUME_EXTEND,
    VOLUME_FETCH,
    VOLUME_FORK,
    VOLUME_RESTORE,
    VOLUME_SNAPSHOT,
)
from hawker.worker.lifecycle.destroy import DESTROY
from hawker.worker.lifecycle.memory import MEMORY
from hawker.worker.lifecycle.pull import PULL
from hawker.worker.lifecycle.restart import RESTART
from hawker.worker.lifecycle.start import CREATE, START
from hawker.worker.lifecycle.stop import REST, STOP
from hawker.worker.lifecycle.suspend import RESUME, SUSPEND
from hawker.worker.lifecycle.update import UPDATE
from hawker.worker.moves.arrive import ARRIVE
from hawker.worker.moves.deliver import DELIVER
from hawker.worker.moves.move import MOVE
from hawker.worker.moves.receive import RECEIVE
from hawker.worker.moves.reclaim import RECLAIM
from hawker.worker.moves.snapshots import BRING_SNAPSHOTS
from hawker.worker.moves.surrender import SURRENDER

FLOWS: tuple[Flow[Any], ...] = (
    PULL,
    CREATE,
    START,
    STOP,
    SUSPEND,
    RESUME,
    ARRIVE,
    MEMORY,
    REST,
    RESTART,
    UPDATE,
    DESTROY,
    ARCHIVE,
    VOLUME_CREATE,
    VOLUME_RESTORE,
    VOLUME_FETCH,
    VOLUME_FORK,
    VOLUME_EXTEND,
    VOLUME_SNAPSHOT,
    VOLUME_BACKUP,
    VOLUME_DESTROY,
    MOVE,
    DELIVER,
    RECEIVE,
    BRING_SNAPSHOTS,
    RECLAIM,
    SURRENDER,
)
