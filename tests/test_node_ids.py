import subprocess
import sys
from pathlib import Path

from tests.node_ids import own_node_id


def test_ids_of_nodes_begin_differently() -> None:
    given = [own_node_id() for _ in range(200)]
    assert len({node_id[:4] for node_id in given}) == 200 and {len(node_id) for node_id in given} == {8}


def test_ids_of_nodes_of_another_process_begin_differently() -> None:
    program = "from tests.node_ids import own_node_id; print(own_node_id())"
    theirs = subprocess.check_output([sys.executable, "-c", program], cwd=Path(__file__).parents[1], text=True)
    assert theirs[:2] != own_node_id()[:2]
