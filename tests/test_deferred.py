"""A deferred module is imported by its first use, and is then the module itself."""

import subprocess
import sys

import pytest

from hawker.deferred import deferred


def test_deferred_module_is_imported_by_its_first_use() -> None:
    code = (
        "import sys; from hawker.deferred import deferred; late = deferred('colorsys'); before = 'colorsys' in"
        " sys.modules; late.rgb_to_hsv(0, 0, 0); print(before, 'colorsys' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_deferred_module_shows_what_was_put_into_it_since(monkeypatch: pytest.MonkeyPatch) -> None:
    late = deferred("hawker.deferred")
    assert late.deferred is deferred
    monkeypatch.setattr("hawker.deferred.deferred", len)
    assert late.deferred is len


def test_deferred_module_that_is_not_there_fails_at_its_use() -> None:
    late = deferred("hawker.nowhere")
    with pytest.raises(ModuleNotFoundError, match=r"hawker\.nowhere"):
        _ = late.anything
