"""Flow `update`: the new version's image first, while the old one still runs; then as `restart`.

If the image cannot be had, the machine goes on with its old version. Once the old instance is ended there is no way
back: a new version that does not start leaves the machine failed, with both versions in its history.
"""

from hawker.fsm.contract import Backoff, Done, EndedRun, Ending, Flow, Outcome, Step
from hawker.machine import GONE, OFF
from hawker.record.machine import MACHINES, Detail, kept_for
from hawker.store.contract import Tx
from hawker.worker.lifecycle.deps import Context, FlowDeps
from hawker.worker.lifecycle.start import LAUNCHING, have_image, mark_failed, runs
from hawker.worker.lifecycle.stop import HALT, RestartInput, keep
from hawker.worker.table import Happened


async def image(context: Context[RestartInput]) -> Outcome:
    """Has the new image here. Nothing of the running machine is touched before this is done."""
    await have_image(context)
    return Done()


def fall_back(tx: Tx, ended: EndedRun[RestartInput]) -> None:
    """Return to the old version if its instance was never touched, else mark the machine failed. If the update was
    overtaken, by a stop, that goes on with the new version."""
    deps: FlowDeps = ended.deps
    record = tx.get(MACHINES, ended.resource.id)
    if ended.ending is Ending.DONE or record is None or record.state in GONE:
        return
    if record.awaited != ended.input.instance_id:
        deps.table.change(tx, record, previous=None)
        return
    old = record.previous
    if old is None or (old.state not in OFF and not runs(record)):
        mark_failed(tx, ended)
        return
    detail = Detail(error=ended.error or "cancelled", version=record.version)
    deps.table.change(
        tx,
        record,
        Happened("update", "failed", detail=detail),
        state=old.state,
        version=old.version,
        config=old.config,
        image=old.image,
        container_images=old.container_images,
        holds=old.holds,
        gpus=kept_for(record, old.config),
        previous=None,
        awaited=None,
    )


IMAGE = Step("image", image, undo=keep, timeout_s=3600, backoff=Backoff(attempts=2), points=("child_accepted",))

UPDATE = Flow(name="update", input=RestartInput, steps=(IMAGE, HALT, *LAUNCHING), on_end=fall_back)
