from tests.tidy.mirror import mirrored
from tests.tidy.tree import tree_of

CODE = "def encode(value: int) -> str:\n    return str(value)\n"


def subjects(texts: dict[str, str]) -> list[str]:
    return [finding.subject for finding in mirrored(tree_of(texts))]


def test_code_without_its_test_is_found() -> None:
    assert subjects({"src/hawker/store/contract.py": CODE, "src/hawker/ids.py": CODE}) == [
        "hawker.ids",
        "hawker.store.contract",
    ]


def test_code_with_its_test_is_not_found() -> None:
    tests = {
        "tests/store/test_contract.py": "def test_x(): ...",
        "tests/test_ids.py": "class T:\n    def test_x(s): ...",
    }
    assert subjects({"src/hawker/store/contract.py": CODE, "src/hawker/ids.py": CODE, **tests}) == []


def test_a_test_file_without_a_test_does_not_count() -> None:
    assert subjects({"src/hawker/ids.py": CODE, "tests/test_ids.py": CODE}) == ["hawker.ids"]


def test_a_module_of_bare_declarations_needs_no_test() -> None:
    contract = 'class Store(Protocol):\n    limit = 3\n    def get(self):\n        """It."""\n    def put(self): ...\n'
    assert subjects({"src/hawker/store/contract.py": contract, "src/hawker/store/__init__.py": ""}) == []


def test_a_package_below_a_room_may_have_one_test() -> None:
    package = {"src/hawker/worker/moves/__init__.py": CODE, "src/hawker/worker/moves/runs.py": CODE}
    assert subjects(package) == ["hawker.worker.moves", "hawker.worker.moves.runs"]
    assert subjects({**package, "tests/worker/test_moves.py": "def test_x(): ..."}) == []
    assert subjects({**package, "tests/worker/moves/test_runs.py": "def test_x(): ..."}) == ["hawker.worker.moves"]


def test_a_room_may_not_be_tested_by_one_file() -> None:
    assert subjects({"src/hawker/store/contract.py": CODE, "tests/test_store.py": "def test_x(): ..."}) == [
        "hawker.store.contract"
    ]
