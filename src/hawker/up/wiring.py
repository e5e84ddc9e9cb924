"""Where a worker and its fleet meet, which do not know each other: what the node answers. The daemon and the simulators
join them here.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hawker.api.handlers import Handlers
from hawker.catalog.contract import Catalog
from hawker.deferred import deferred
from hawker.deploys.deploy_handlers import DeployHandlers
from hawker.deploys.flows import DEPLOY_FLOWS, table_of
from hawker.deploys.release_handlers import ReleaseHandlers
from hawker.fleet.app_handlers import PeerAppHandlers
from hawker.fleet.handlers import ClusterHandlers
from hawker.fsm.contract import Flow
from hawker.gossip.contract import Member
from hawker.handlers.assembly import FleetSide, node_info_of, worker_handlers
from hawker.handlers.node import AgentFindings
from hawker.ids import NodeId
from hawker.node import labels_of
from hawker.worker.assembly import AssembledWorker
from hawker.worker.lifecycle import FLOWS
from hawker.worker.order import AppBundles

if TYPE_CHECKING:
    from hawker.deploys import accept, catch_up, register, takeover, term_fence
    from hawker.fleet import gossip_bridge
    from hawker.fleet.app_bundle import AppBundler
    from hawker.fleet.joining import Invites
    from hawker.fleet.membership import Fleet
else:
    accept = deferred("hawker.deploys.accept")
    catch_up = deferred("hawker.deploys.catch_up")
    takeover = deferred("hawker.deploys.takeover")
    register = deferred("hawker.deploys.register")
    term_fence = deferred("hawker.deploys.term_fence")
    gossip_bridge = deferred("hawker.fleet.gossip_bridge")

NODE_FLOWS: tuple[Flow[Any], ...] = (*FLOWS, *DEPLOY_FLOWS)
"""All that a node runs: its worker's, and the deploys of the apps whose home it is."""


def node_handlers(
    worker: AssembledWorker,
    *,
    fleet: "Fleet | None" = None,
    catalog: Catalog | None = None,
    bundler: "AppBundler | None" = None,
    bundles: AppBundles | None = None,
    agent_findings: AgentFindings | None = None,
    invites: "Invites | None" = None,
) -> Handlers:
    """The handlers of everything that a node answers by itself. A node that is alone has no fleet, no catalog, no
    bundler and no invites; `bundles` is then what it does with the apps of its orders. `agent_findings` is what is
    wrong with an agent that keeps the catalog."""
    deps = worker.deps
    side = FleetSide(
        catalog=catalog,
        in_fleet=bundler is not None,
        fleet=fleet,
        bundles=bundler or bundles,
        wrong_clocks=partial(_wrong_clocks, fleet),
        agent_findings=agent_findings,
    )
    handlers = worker_handlers(worker, side)
    labels = labels_of(deps.settings.labels)
    ClusterHandlers(worker.node, deps.store, labels, node_info_of(worker), fleet, invites).bind(handlers)
    PeerAppHandlers(
        worker.node.id,
        deps.store,
        deps.clock,
        counts=worker.apps,
        enforce=deps.enforcer.renew_soon,
        catalog=catalog,
        bundler=bundler,
        app_of_hostname=deps.certificates.app_of,
        members=partial(_members, fleet),
    ).bind(handlers)
    deploys = DeployHandlers(table_of(deps), partial(_intake_of, worker), deps.others)
    taken = takeover.TakeHandlers(table_of(deps), lambda: deps.others.there, deps.clock, worker.runner)
    handlers.add(ReleaseHandlers(deps.store, deps.clock), deploys, taken)
    if bundler is not None:
        handlers.add(register.RegisterHandlers(deps.store, deps.clock))
        term_fence.TermFence(deps.store, deps.clock).stand_before(handlers)
    return handlers


def catch_up_of(worker: AssembledWorker) -> "catch_up.CatchUp":
    deps = worker.deps
    return catch_up.CatchUp(table_of(deps), partial(_intake_of, worker), deps.settings.adopt_deploys)


def _intake_of(worker: AssembledWorker) -> "accept.Intake":
    deps = worker.deps
    table, others = table_of(deps), deps.others
    return accept.Intake(
        table,
        deps.clock,
        deps.fleet,
        deps.secrets,
        worker.runner,
        lambda: others.there,
        deps.settings.listed_registries,
        deps.settings.domain,
    )


def _members(fleet: "Fleet | None") -> Sequence[Member]:
    return () if fleet is None else fleet.members


def _wrong_clocks(fleet: "Fleet | None") -> Sequence[tuple[NodeId, str]]:
    return () if fleet is None else gossip_bridge.wrong_clocks(fleet.me, fleet.members)
