"""The path of a create through the source, as a real node goes it, is the one that ARCHITECTURE.md draws."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import call_stacks
from tests.e2e.command_line import TIMEOUT_S, CommandLine
from tests.e2e.running_node import HAWKER, running_node
from tests.tidy.tree import ROOT

pytestmark = [pytest.mark.root, pytest.mark.slow]

MOST_FILES = 22
CLIENT = ("http.connection_pool:Http1Connection.request",)
NODE = (
    "api.in_process:InProcessCaller.call",
    "worker.admission:Admission.place",
    "worker.table:MachineTable.insert",
    "fsm.ledger:Ledger.accept",
    "store.sqlite:SqliteStore.write",
    "runtime.launcher.launch:BoxLauncher.run",
    "runtime.crun:Crun.run",
)
"""Where something of a create is sent, asked, decided, written or begun; the first argument says of which call."""
AROUND = {
    "cli/entry.py": "begins every command",
    "cli/options.py": "puts the options of every command together",
    "api/in_process.py": "is the client where market and worker are one process, as here",
    "runtime/crun.py": "is the launcher of a host on which ours does not work",
}


def drawn() -> set[str]:
    text = (ROOT / "ARCHITECTURE.md").read_text().split("# How a machine is created", 1)[1]
    return {f"{place}.py" for place in re.findall(r"[a-z_]+(?:/[a-z0-9_]+)+", text.split("```", 2)[1])}


def stacks(file: Path) -> list[tuple[str, str, list[str]]]:
    return [tuple(json.loads(line)) for line in file.read_text().splitlines()]


def test_drawn_path_is_of_at_most_22_files_that_are_there() -> None:
    files = drawn()
    assert len(files) <= MOST_FILES, sorted(files)
    assert all((ROOT / "src/hawker" / file).is_file() for file in files)


def test_create_goes_the_drawn_path(tmp_path: Path) -> None:
    tracer = (sys.executable, call_stacks.__file__)
    asked, done = tmp_path / "client", tmp_path / "node"
    with running_node(tmp_path / "place", "--ephemeral", before_it=(*tracer, str(done), *NODE, "--")) as node:
        environment = node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)}
        CommandLine(environment).say("pull", "hawker/hello")
        order = (*tracer, str(asked), *CLIENT, "--", HAWKER, "run", "hawker/hello")
        subprocess.run(order, env=environment, check=True, timeout=TIMEOUT_S)
    sent = [files for _, request, files in stacks(asked) if re.match(r"b'POST /v1/apps/[^ ]*/machines ", request)]
    assert len(sent) == 1
    gone = set(sent[0])
    for function, first, files in stacks(done):
        of_order = "worker/order.py" in files or "worker/lifecycle/start.py" in files or first in ("fill", "quote")
        if of_order and not (function == "SqliteStore.write" and "fsm/drive.py" in files):
            gone |= {file for file in files if not file.startswith("store/")}
    assert gone - set(AROUND) - drawn() == set(), "on the path, and not drawn"
    assert drawn() - gone == set(), "drawn, and not on the path"
