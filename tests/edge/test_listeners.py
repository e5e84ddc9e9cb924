"""Where the edge listens: what routes want, as the warden gives it."""

import msgspec

from hawker.feed import AllMachines, AppAddress, MachineGone
from hawker.machine import State
from tests.edge.edge_kit import HOST, PlayedHost, route
from tests.ports import free_port
from tests.waiting import eventually


async def test_a_port_is_listened_at_while_a_machine_publishes_it(host: PlayedHost) -> None:
    machine = route(free_port(), 1)
    await host.publish(machine)
    host.worker.put(msgspec.structs.replace(machine, state=State.STOPPED))
    other = route(free_port(), 1)
    await host.publish(other)
    assert len(list(host.edge.bound())) == 2, "a machine that sleeps is still reached"
    host.worker.say(MachineGone(id=machine.id))
    await eventually(lambda: len(list(host.edge.bound())) == 1)
    await eventually(lambda: len(host.sockets.bound) == 1)


async def test_an_address_that_an_app_has_alone_is_told_apart(host: PlayedHost) -> None:
    machine = route(free_port(), 1)
    await host.publish(machine)
    assert [each.owned for each in host.edge.bound()] == [False]
    own = (AppAddress(app=machine.app, ip=HOST),)
    host.worker.say(AllMachines(machines=(machine,), addresses=(HOST,), app_addresses=own))
    await eventually(lambda: [each.owned for each in host.edge.bound()] == [True])
