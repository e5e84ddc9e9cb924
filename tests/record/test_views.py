import msgspec

from hawker.ids import AppName, EventId
from hawker.record import views
from hawker.record.app import AppRecord
from hawker.record.machine import Detail, EventRecord, Lease
from hawker.runtime.driver import Exit
from hawker.sim.node.sim_worker import config_of
from tests.worker.machines import NOW, machine


def _event(detail: Detail | None) -> EventRecord:
    return EventRecord(id=EventId("E1"), type="exit", status="stopped", source="flyd", at=NOW, detail=detail)


def test_an_exit_event_has_all_that_clients_read() -> None:
    exit = Exit(exit_code=137, signal=9, oom_killed=True, exited_at=NOW)
    shown = views.event(_event(Detail(exit=exit, restarting=True, restart_count=2)))
    assert shown.timestamp == int(NOW * 1000) and shown.request is not None
    told = shown.request.exit_event
    assert told is not None and shown.request.restart_count == 2
    assert (told.exit_code, told.guest_exit_code, told.guest_signal, told.signal) == (137, 0, 9, 9)
    assert told.oom_killed and told.restarting and not told.requested_stop


def test_an_exit_without_a_signal_says_minus_one() -> None:
    shown = views.event(_event(Detail(exit=Exit(exit_code=3, exited_at=NOW))))
    assert shown.request is not None and shown.request.exit_event is not None
    assert (shown.request.exit_event.guest_exit_code, shown.request.exit_event.signal) == (3, -1)


def test_only_an_exit_has_a_request_and_both_fields_of_it_are_sent() -> None:
    failed = views.event(_event(Detail(error="why", version="V1")))
    assert (failed.request, failed.error, failed.version) == (None, "why", "V1")
    first = views.event(_event(Detail(exit=Exit(exit_code=0, exited_at=NOW))))
    assert set(msgspec.to_builtins(first.request)) == {"exit_event", "restart_count"}


def test_an_event_without_a_detail_has_no_request() -> None:
    assert views.event(_event(None)).request is None


def test_a_guest_is_always_shown_and_the_config_else_as_given() -> None:
    shown = views.machine(machine(config=config_of(size="performance-2x")), [], ())
    assert shown.config is not None and shown.config.guest is not None and shown.config.size == "performance-2x"
    assert (shown.config.guest.cpu_kind, shown.config.guest.cpus, shown.config.guest.memory_mb) == (
        "performance",
        2,
        4096,
    )


def test_only_a_lease_that_is_held_is_shown() -> None:
    record = machine(lease=Lease(nonce="n", owner="ann", description="deploying", expires_at=NOW + 5))
    assert views.machine(record, [], ()).lease is None
    shown = views.machine(record, [], (), lease_at=NOW).lease
    assert shown is not None and (shown.owner, shown.expires_at) == ("ann", NOW + 5)
    assert views.machine(record, [], (), lease_at=NOW + 5).lease is None


def test_an_app_is_deployed_once_it_has_machines() -> None:
    record = AppRecord(
        id="1", number=7, name=AppName("shop"), org="acme", network="default", network_id=1, created_at=NOW
    )
    assert (views.app(record, 0, 1).status, views.app(record, 2, 0).status) == ("pending", "deployed")
    shown = views.app(record, 2, 3)
    assert (shown.machine_count, shown.volume_count, shown.created_at) == (2, 3, int(NOW * 1000))
