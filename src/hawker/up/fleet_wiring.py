"""What a worker is to its fleet: what it publishes, the failover of its machines, and the deploys of which it is a
voter. The daemon and the simulators join them here.
"""

from hawker.deploys.flows import table_of
from hawker.deploys.takeover import DeployWatch
from hawker.fleet.failover import Failover, FailoverView
from hawker.fleet.publish import PublishedState
from hawker.worker.assembly import AssembledWorker


def published_by(worker: AssembledWorker) -> PublishedState:
    images = worker.deps.images
    return PublishedState(
        node=worker.node.id,
        store=worker.deps.store,
        health_of=worker.health.of,
        room=worker.room,
        images=lambda: [str(image.digest) for image in images.list()],
        image_names=lambda: [(each.reference, each.digest, each.at) for each in images.imported_names()],
    )


def failover_of(worker: AssembledWorker, sight: FailoverView) -> Failover:
    deps = worker.deps
    return Failover(worker.node.id, deps.store, deps.clock, worker.operations, sight, worker.changes.listen)


def deploy_watch_of(worker: AssembledWorker) -> DeployWatch:
    deps = worker.deps
    return DeployWatch(table_of(deps), lambda: deps.others.there, deps.clock, worker.runner)
