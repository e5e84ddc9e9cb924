from hawker.api.audit import is_audited, is_grave
from hawker.api.contract.cluster import CREATE_INVITE
from hawker.api.contract.machine import DELETE_MACHINE, GET_MACHINE
from hawker.api.contract.machine_operation import STOP_MACHINE
from hawker.api.contract.secret import LIST_SECRETS
from hawker.api.routes import ROUTES


def test_grave_is_what_opens_a_machine_or_a_secret_or_changes_who_may_do_what() -> None:
    grave = {route.name for route in ROUTES if is_grave(route, b"")}
    assert {"exec_machine", "machine_terminal", "set_secret", "create_deploy_token", "revoke_token"} <= grave
    assert is_grave(CREATE_INVITE, b"") and is_grave(LIST_SECRETS, b"show_secrets=true")
    assert not is_grave(LIST_SECRETS, b"") and not is_audited(LIST_SECRETS, b"")


def test_the_end_of_a_machine_is_told_and_never_waits_for_the_log() -> None:
    for route in (DELETE_MACHINE, STOP_MACHINE):
        assert is_audited(route, b"") and not is_grave(route, b"")
    assert not is_audited(GET_MACHINE, b"")
