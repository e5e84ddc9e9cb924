"""A million orders over 10,000 hosts in one run, by the market, with every promise checked; and how many decisions a
second each policy makes when it does nothing else.

    python bench/million_orders.py [--orders N] [--hosts N] [--decisions N] [--only orders|decisions]
                                   [--ask-best N] [--ask-random N]

One core, virtual time. Seconds are of the processor, so what else runs here counts for little. Needs no root.
"""

import argparse
import resource
import time
from collections.abc import Callable

from bench.schedulers.central import first_fit, spread
from bench.schedulers.costs import Costs
from bench.schedulers.fleet import FleetPlan
from bench.schedulers.host import Host
from bench.schedulers.optimistic import Snapshot, Table, fullest_of_some
from bench.schedulers.run import Kit, Run
from bench.schedulers.valuation import node_id, ranked
from bench.schedulers.view import View
from bench.schedulers.workload import Order, Workload, orders
from hawker.api.directory import Node
from hawker.clock import ManualClock
from hawker.config.placement import Placement
from hawker.market.preferences import Limits, preferences
from hawker.market.survey import Fields, Wanted, rounds
from hawker.node import Capacity, Resources

_PLAN_MIB = 32_768 * 5 // 4  # of a host of the plan, on average
_ASKED = 16
_RATIO = 8
_DISK_MIB = 1 << 20


def row(what: str, found: str) -> None:
    print(f"| {what} | {found} |", flush=True)


def million(count: int, hosts: int, limits: Limits) -> None:
    began = time.process_time()
    run = Run("market", FleetPlan(hosts=hosts), Costs(), seed=1, kit=Kit(preferences=preferences(limits=limits)))
    report = run.play(orders(Workload(orders=count), run.fleet.memory_mib))
    took_s = time.process_time() - began
    print("| what | found |\n|---|---:|")
    row("orders over hosts", f"{report.orders:,} over {report.hosts:,}")
    row("asked for each order", f"{report.asked:.1f} hosts")
    row("virtual time", f"{report.virtual_s:,.0f} s")
    row("one core's time", f"{took_s:,.0f} s")
    row("orders a second of it", f"{report.orders / took_s:,.0f}")
    row("most memory", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")
    row("placed", f"{report.placed:,}")
    refused = ", ".join(f"{number:,} {why}" for why, number in report.refused.items())
    row("refused", f"{refused or 0} ({report.avoidable:,} while some host had room)")
    row("placement p50 / p99, virtual", f"{report.place_p50_ms} / {report.place_p99_ms} ms")
    row("machines at the end", f"{run.notary.machines:,}")
    row("busy, second half", f"{report.busy:.0%}")
    row("host failures", f"{report.failures:,}, with {report.lost_with_hosts:,} machines on hosts that never came back")
    row("broken promises", f"{len(report.breaches)}")
    for breach in report.breaches:
        row(breach.promise, f"{breach.about}: {breach.what}")


def half_full(count: int) -> list[Host]:
    """A fleet that a shared random order filled, whatever the policy."""
    fleet = FleetPlan(hosts=count).build()
    chance = ManualClock(seed=1)
    for order in orders(Workload(orders=count * 12), count * _PLAN_MIB):
        host = fleet[int(chance.random() * count)]
        if host.fits(order):
            host.take(order)
            host.pull(order, 0.0)
    return fleet


def rate(decide: Callable[[Order], object], asked: list[Order]) -> str:
    began = time.process_time()
    for order in asked:
        decide(order)
    return f"{len(asked) / (time.process_time() - began):,.0f}"


def decisions(hosts: int, count: int) -> None:
    fleet = half_full(hosts)
    view, chance, wishes = View(fleet), ManualClock(seed=2), preferences()
    snapshot = Snapshot(Table(view))
    asked = list(orders(Workload(orders=count, seed=3), hosts * _PLAN_MIB))
    nodes = tuple(_node(host) for host in fleet)

    def market(order: Order) -> None:
        ranked([fleet[int(chance.random() * hosts)] for _ in range(_ASKED)], order, wishes)

    print(f"| decisions a second over {hosts:,} hosts | |\n|---|---:|")
    row("first-fit, by the tree of the model", rate(lambda order: first_fit(view, order), asked))
    row("spread, by the tree of the model", rate(lambda order: spread(view, order), asked))
    row("optimistic, log2 of hosts with room", rate(lambda order: fullest_of_some(snapshot, order, chance), asked))
    row(f"market, {_ASKED} bids made and ranked", rate(market, asked))
    few = asked[: max(1, 200_000 // hosts)]
    row("spread, by a plain scan", rate(lambda order: _emptiest(fleet, order), few))
    fields, wanted, limits = Fields(wishes), Wanted(placement=Placement()), wishes.limits

    def first_round(known: tuple[Node, ...]) -> None:
        next(rounds(fields.of(known, known[0].region, wanted).fit, limits, chance.random()))

    row("market, candidates when something was published", rate(lambda _: first_round((*nodes,)), few))
    first_round(nodes)
    row("market, candidates until something is", rate(lambda _: first_round(nodes), few))


def _emptiest(fleet: list[Host], order: Order) -> Host:
    return min((host for host in fleet if host.fits(order)), key=Host.busy)


def _node(host: Host) -> Node:
    return Node(
        id=node_id(host),
        region="sim",
        labels={},
        capacity=Capacity(cpus=host.cpus // _RATIO, memory_mib=host.memory_mib, disk_mib=_DISK_MIB),
        used=Resources(
            shared_cpus=host.cpus - host.cpus_left, memory_mib=host.memory_mib - host.memory_left, disk_mib=0
        ),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--orders", type=int, default=1_000_000)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--decisions", type=int, default=5000)
    parser.add_argument("--only", choices=["orders", "decisions"])
    parser.add_argument("--ask-best", type=int, default=Limits().ask_best)
    parser.add_argument("--ask-random", type=int, default=Limits().ask_random)
    given = parser.parse_args()
    if given.only != "orders":
        for size in (100, 1000, 10_000):
            decisions(size, given.decisions)
    if given.only != "decisions":
        million(given.orders, given.hosts, Limits(ask_best=given.ask_best, ask_random=given.ask_random))
