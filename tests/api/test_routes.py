from hawker.api.contract.cluster import ROOT_CLUSTER_ROUTES
from hawker.api.routes import PEER_ROUTES, ROUTES, asked_by_nodes


def test_nodes_ask_each_other_for_what_clients_calls_need_and_no_more() -> None:
    names = {"app_name", "machine_id", "volume_id"}
    whole = {route.name for route in ROUTES if asked_by_nodes(route) and not names & {*route.params.__struct_fields__}}
    assert whole == {
        *("abort_run", "get_run", "list_runs", "retry_run"),
        *("cancel_move", "get_move", "limit_move", "list_moves", "pause_move", "reclaim_move", "resume_move"),
        *("admit_host", "revoke_invite", "cordon_node", "drain_node", "uncordon_node", "node_info"),
        *("create_app", "list_apps", "list_org_machines", "list_org_volumes", "list_placements"),
    }
    assert all(map(asked_by_nodes, PEER_ROUTES))


def test_a_call_that_takes_the_root_token_is_none_that_nodes_ask() -> None:
    assert not [route.name for route in ROOT_CLUSTER_ROUTES if asked_by_nodes(route)]
