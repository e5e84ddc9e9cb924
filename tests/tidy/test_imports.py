import re

import pytest

from tests.tidy import imports
from tests.tidy.rules import Rule
from tests.tidy.tree import ROOT, tree_of


def lines(rule: Rule, **sources: str) -> list[str]:
    """The subjects of what the rule finds; `store__disk="..."` stands for src/hawker/store/disk.py."""
    texts = {f"src/hawker/{name.replace('__', '/')}.py": text for name, text in sources.items()}
    return [finding.subject for finding in rule(tree_of(texts))]


@pytest.mark.parametrize(
    ("importer", "statement"),
    [
        ("store__disk", "from hawker.ids import RunId"),
        ("machine", "from hawker.errors import Conflict"),
        ("fsm__runner", "from hawker.store.contract import Store"),
        ("runtime__crun", "from hawker.host import cgroup"),
        ("worker__records", "from hawker.runtime.driver import Exit"),
        ("cli__apps", "import hawker.api.client"),
        ("sim__fleet", "from hawker.worker import supervisor"),
        ("up", "from hawker.gateway.server import serve"),
        ("image__pull", "from hawker.image.layer import Layer"),
    ],
)
def test_an_import_may_go_down(importer: str, statement: str) -> None:
    assert lines(imports.downward, **{importer: statement}) == []


@pytest.mark.parametrize(
    ("importer", "statement", "target"),
    [
        ("machine", "from hawker.store.contract import Store", "hawker.store.contract"),
        ("store__disk", "import hawker.fsm.run", "hawker.fsm.run"),
        ("image__pull", "from hawker.host import mount", "hawker.host"),
        ("api__client", "from hawker.store import codec", "hawker.store"),
        ("fsm__runner", "from hawker.host.cgroup import Cgroup", "hawker.host.cgroup"),
        ("fsm__runner", "from hawker.runtime import driver", "hawker.runtime"),
        ("runtime__crun", "from hawker.store import contract", "hawker.store"),
        ("worker__admission", "from hawker.market import ranking", "hawker.market"),
        ("cli__apps", "from hawker.worker.admission import Admission", "hawker.worker.admission"),
        ("cli__main", "from hawker.up import up", "hawker.up"),
        ("gateway__routes", "if TYPE_CHECKING:\n    from hawker.edge.wake import Wake", "hawker.edge.wake"),
        ("gateway__routes", "from ..worker import records", "hawker.worker"),
    ],
)
def test_an_import_up_or_sideways_is_found(importer: str, statement: str, target: str) -> None:
    assert lines(imports.downward, **{importer: statement}) == [target]


def test_a_module_taken_from_its_package_is_named() -> None:
    found = lines(imports.downward, store__codec="", api__client="from hawker.store import codec")
    assert found == ["hawker.store.codec"]


def test_a_room_without_a_rung_is_found() -> None:
    assert lines(imports.downward, plugins__loader="") == ["plugins"]


def test_image_host_and_runtime_meet_in_the_lifecycle_only() -> None:
    both = "from hawker.image import pull\nfrom hawker.runtime import driver\n"
    assert lines(imports.one_meeting_place, worker__operations=both) == ["image+runtime"]
    assert lines(imports.one_meeting_place, worker__lifecycle__create=both, up=both) == []
    assert lines(imports.one_meeting_place, worker__records="from hawker.runtime import driver") == []


def test_a_driver_that_knows_the_host_is_no_meeting() -> None:
    source = "from hawker.host import cgroup\nfrom hawker.runtime import driver\n"
    assert lines(imports.one_meeting_place, runtime__crun=source) == []


def test_an_import_inside_a_function_is_found() -> None:
    assert lines(imports.at_the_top, log="def configure():\n    if True:\n        import rich\n") == ["configure"]
    assert lines(imports.at_the_top, log="class A:\n    async def call(self):\n        from os import path\n") == [
        "call"
    ]
    assert lines(imports.at_the_top, log="try:\n    import rich\nexcept ImportError:\n    rich = None\n") == []


def test_a_hidden_library_is_found_outside_its_owner() -> None:
    assert lines(
        imports.hidden_libraries, store__sqlite="import apsw", worker__export="from apsw import Connection"
    ) == ["apsw"]


def test_a_cycle_is_found_at_each_of_its_modules() -> None:
    circle = {
        "store__a": "from hawker.store import b",
        "store__b": "from hawker.store.c import X",
        "store__c": "import hawker.store.a",
    }
    assert lines(imports.acyclic, **circle) == ["hawker.store.a", "hawker.store.b", "hawker.store.c"]
    assert lines(imports.acyclic, **circle | {"store__c": ""}) == []


def test_a_module_that_nothing_imports_is_dead() -> None:
    assert lines(imports.alive, store__codec="", store__disk="from hawker.store.disk import X") == [
        "hawker.store.codec",
        "hawker.store.disk",
    ]
    assert lines(imports.alive, store__codec="", store="from hawker.store.codec import X") == ["hawker.store"]


def test_a_test_does_not_keep_a_module_alive() -> None:
    tree = tree_of({"src/hawker/log.py": "", "tests/test_log.py": "from hawker import log"})
    assert [finding.subject for finding in imports.alive(tree)] == ["hawker.log"]


def test_a_script_of_the_project_keeps_a_module_alive() -> None:
    tree = tree_of({"src/hawker/fsm/diagram.py": "", "scripts/docs.py": "from hawker.fsm.diagram import page"})
    assert list(imports.alive(tree)) == []


def test_where_a_program_begins_is_alive() -> None:
    project = '[project.scripts]\nhawker = "hawker.cli.main:main"\n'
    tree = tree_of({"src/hawker/cli/main.py": "", "src/hawker/__main__.py": "", "pyproject.toml": project})
    assert list(imports.alive(tree)) == []


def test_architecture_names_every_room_in_its_reading_order() -> None:
    order = (ROOT / "ARCHITECTURE.md").read_text().split("# Reading the source", 1)[1]
    rooms = {path.name for path in (ROOT / "src/hawker").iterdir() if (path / "__init__.py").is_file()}
    assert len(rooms) > 30
    assert sorted(room for room in rooms if f"`{room}/" not in order) == []


def test_architecture_draws_the_rooms_that_the_imports_have() -> None:
    drawing = (ROOT / "ARCHITECTURE.md").read_text().split("```\n4  up", 1)[1].split("```")[0]
    built = {path.stem for path in (ROOT / "src/hawker").iterdir() if path.name != "__pycache__"}
    words = [set(re.findall(r"[a-z_]+", line)) for line in re.split(r"\n(?=[0-9])", "4  up" + drawing)]
    for drawn, rung in zip(words, reversed(imports.RUNGS), strict=True):
        assert rung & built <= drawn, f"ARCHITECTURE.md does not draw {sorted(rung & built - drawn)}"
        elsewhere = imports.ROOMS - rung - {"store", "host", "catalog", "api"}
        assert not drawn & elsewhere, f"ARCHITECTURE.md draws {sorted(drawn & elsewhere)} on another rung"
