from pathlib import Path

import pytest

from hawker.host.network import NodeNetwork
from hawker.host.packet_counts import REASONS, TrackedConnections, connection_table, dropped_packets


def test_the_table_of_connections_is_read_with_its_limit(tmp_path: Path) -> None:
    assert connection_table(tmp_path) is None
    (tmp_path / "nf_conntrack_count").write_text("300\n")
    (tmp_path / "nf_conntrack_max").write_text("400\n")
    found = connection_table(tmp_path)
    assert found == TrackedConnections(300, 400) and found.share == 0.75
    assert TrackedConnections(3, 0).share == 0.0


@pytest.mark.root
@pytest.mark.anyio
async def test_every_reason_is_counted_from_the_first_rules_on(network: NodeNetwork) -> None:
    assert dropped_packets(network.node_id) == dict.fromkeys(REASONS, 0) == await network.dropped()
    await network.remove_node()
    assert dropped_packets(network.node_id) == {}
