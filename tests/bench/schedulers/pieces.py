"""Orders, hosts and whole small fleets, as the tests of the schedulers need them."""

from dataclasses import dataclass

from bench.schedulers.costs import Costs
from bench.schedulers.courier import Courier
from bench.schedulers.fleet import Fleet, FleetPlan
from bench.schedulers.host import Host
from bench.schedulers.notary import Notary
from bench.schedulers.policy import Tools
from bench.schedulers.report import Report
from bench.schedulers.run import SOUND, Kit, Run
from bench.schedulers.tally import Tally
from bench.schedulers.timeline import Timeline
from bench.schedulers.workload import Order, Workload, orders
from hawker.clock import ManualClock
from hawker.market.preferences import Limits, preferences

SURE = Costs(loss=0.0)


def order(number: int = 0, *, at_s: float = 0.0, cpus: int = 1, memory_mib: int = 1024, image: int = 1) -> Order:
    return Order(
        number=number, at_s=at_s, cpus=cpus, memory_mib=memory_mib, lifetime_s=60.0, image=image, image_mib=250
    )


def host(number: int = 0, *, cpus: int = 64, memory_mib: int = 32_768, cache_mib: int = 1000) -> Host:
    return Host(number, cpus=cpus, memory_mib=memory_mib, bandwidth_mib_s=125.0, cache_mib=cache_mib)


@dataclass(frozen=True, slots=True)
class Stage:
    """All parts of a run but the policy, with hosts that do not fail by themselves."""

    hosts: list[Host]
    timeline: Timeline
    notary: Notary
    fleet: Fleet
    tools: Tools


def stage(hosts: int = 4, costs: Costs = SURE, plan: FleetPlan | None = None, limits: Limits | None = None) -> Stage:
    plan = plan or FleetPlan(hosts=hosts, mtbf_s=0.0)
    timeline, clock, made = Timeline(), ManualClock(seed=1), plan.build()
    notary = Notary(made)
    fleet = Fleet(plan, made, costs, timeline, clock, notary)
    tools = Tools(
        hosts=made,
        fleet=fleet,
        courier=Courier(fleet, costs, timeline, clock, notary),
        tally=Tally(timeline, notary),
        costs=costs,
        timeline=timeline,
        clock=clock,
        preferences=preferences(limits=limits or Limits()),
    )
    return Stage(made, timeline, notary, fleet, tools)


def played(
    policy: str,
    *,
    hosts: int = 20,
    count: int = 1000,
    seed: int = 1,
    costs: Costs | None = None,
    kit: Kit = SOUND,
    **workload: float,
) -> Report:
    run = Run(policy, FleetPlan(hosts=hosts, mtbf_s=20_000.0), costs or Costs(), seed, kit)
    wanted = Workload(orders=count, seed=seed, **workload)  # type: ignore[arg-type]
    return run.play(orders(wanted, run.fleet.memory_mib))
