from tests.tidy.tree import project, tree_of


def test_a_file_knows_its_module() -> None:
    tree = tree_of({"src/hawker/store/contract.py": "", "src/hawker/store/__init__.py": ""})
    assert [file.module for file in tree.product()] == ["hawker.store", "hawker.store.contract"]


def test_the_project_is_read_without_what_is_built() -> None:
    paths = [file.path for file in project().files]
    assert "tests/tidy/test_tree.py" in paths and ".ci/run" in paths
    assert not [path for path in paths if "__pycache__" in path or path.startswith((".venv/", ".git/"))]
