import pytest

from tests.tidy import shape
from tests.tidy.rules import Rule
from tests.tidy.tree import tree_of

NODE = "src/hawker/node.py"


def subjects(rule: Rule, text: str, path: str = NODE) -> list[str]:
    return [finding.subject for finding in rule(tree_of({path: text}))]


def test_a_file_stops_at_500_lines() -> None:
    for path in (NODE, "tests/test_node.py", "bench/start.py", "guest/pilot.c"):
        assert subjects(shape.file_size, "\n" * 500, path) == []
        assert len(subjects(shape.file_size, "\n" * 501, path)) == 1
    assert subjects(shape.file_size, "\n" * 501, "docs/guide.md") == []


def test_a_function_stops_at_60_lines() -> None:
    def of_lines(count: int) -> str:
        return "class A:\n    async def work(self):\n" + "        x = 1\n" * (count - 1)

    assert subjects(shape.function_size, of_lines(60)) == []
    assert subjects(shape.function_size, of_lines(61)) == ["work"]


@pytest.mark.parametrize("head", ["static int work(void) {", "struct x *work(int a,\n    int b)\n{", "work(void) {"])
def test_a_c_function_stops_at_60_lines(head: str) -> None:
    def of_lines(count: int) -> str:
        return "#include <x.h>\n" + head + "\n" + "    if (a) { b(); }\n" * (count - head.count("\n") - 2) + "}\n"

    assert subjects(shape.function_size, of_lines(60), "guest/pilot.c") == []
    assert subjects(shape.function_size, of_lines(61), "guest/pilot.c") == ["work"]


def test_a_c_declaration_or_table_is_no_function() -> None:
    text = "int work(void);\nstatic const struct row rows[] = {\n" + "    {1},\n" * 80 + "};\n"
    assert subjects(shape.function_size, text, "guest/pilot.c") == []


def test_the_middle_of_the_code_is_small() -> None:
    function = "def work():\n" + "    x = 1\n" * 10
    assert subjects(shape.medians, function) == ["function"]
    assert subjects(shape.medians, function + "def a(): ...\n" * 2) == []
    assert subjects(shape.medians, "x = 1\n" * 221) == ["file"]


@pytest.mark.parametrize("path", ["src/hawker/utils.py", "src/hawker/common/disk.py", "tests/test_helpers.py"])
def test_a_name_that_says_nothing_is_found(path: str) -> None:
    assert len(subjects(shape.telling_names, "", path)) == 1
    assert subjects(shape.telling_names, "", "src/hawker/database.py") == []


def test_a_pronoun_is_no_subject_of_a_test() -> None:
    text = "def test_what_is_wrong(): ...\nasync def test_it_ends(): ...\ndef test_a_wrong_value_is_refused(): ..."
    assert subjects(shape.nouns_of_tests, text, "tests/test_x.py") == ["test_what_is_wrong", "test_it_ends"]


def test_a_module_opens_with_one_to_eight_lines() -> None:
    def with_docstring(lines: int) -> str:
        return '"""' + "Line.\n\n" * lines + '"""\n'

    assert subjects(shape.module_docstring, "import os") == ["node"]
    assert subjects(shape.module_docstring, with_docstring(8)) == []
    assert subjects(shape.module_docstring, with_docstring(9)) == ["node"]
    assert subjects(shape.module_docstring, "", "tests/test_node.py") == []


def test_a_public_class_of_a_contract_says_what_it_promises() -> None:
    text = 'class Store:\n    """Keeps."""\nclass Tx: ...\nclass _Own: ...\n'
    assert subjects(shape.contract_docstrings, text, "src/hawker/store/contract.py") == ["Tx"]
    assert subjects(shape.contract_docstrings, text) == []


@pytest.mark.parametrize(
    ("kept", "found"),
    [("B", []), ("store.contract.B", []), ("observer.B", ["observer.B"]), ("Gone", ["Gone"]), ("B` and `Gone", [])],
)
def test_a_contract_that_a_class_keeps_is_there(kept: str, found: list[str]) -> None:
    text = f'class A:\n    """Keeps `{kept}`."""\nclass B: ...\n'
    assert subjects(shape.kept_contracts, text, "src/hawker/store/contract.py") == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import msgspec\nclass A(msgspec.Struct, frozen=True, kw_only=True): ...", []),
        ("import msgspec\nclass A(msgspec.Struct, frozen=True): ...", ["A"]),
        ("import msgspec\nclass A(msgspec.Struct, kw_only=True, frozen=False): ...", ["A"]),
        ("from msgspec import Struct\nclass A(Struct): ...", ["A", "A"]),
        ("from msgspec import Struct\nclass A(Struct, Generic[T]): ...", ["A", "A"]),
        (
            "import msgspec\nclass A(msgspec.Struct, frozen=True, kw_only=True): ...\nclass B(A, frozen=True): ...",
            ["B"],
        ),
        ("class A(Exception): ...", []),
        ("from hawker.value_object import ValueObject\nclass A(ValueObject, frozen=True): ...", []),
        ("from hawker.value_object import ValueObject\nclass A(ValueObject): ...", ["A"]),
    ],
)
def test_a_struct_is_frozen_and_keyword_only(text: str, found: list[str]) -> None:
    assert subjects(shape.frozen_values, text) == found


@pytest.mark.parametrize(
    ("decorator", "found"),
    [
        ("@dataclass(frozen=True, slots=True)", []),
        ("@dataclass(slots=True)", ["A"]),
        ("@dataclass", ["A", "A"]),
        ("@final", []),
    ],
)
def test_a_dataclass_is_frozen_and_slotted(decorator: str, found: list[str]) -> None:
    text = f"from dataclasses import dataclass\nfrom typing import final\n{decorator}\nclass A: ...\n"
    assert subjects(shape.frozen_dataclasses, text) == found
