"""Facts about work in a mount namespace of its own."""

from pathlib import Path

import pytest

from hawker.host.mount import is_mounted, mount, privately

pytestmark = pytest.mark.root


def test_a_private_mount_is_seen_there_and_nowhere_else(tmp_path: Path) -> None:
    def work() -> bool:
        mount("tmpfs", tmp_path, "tmpfs", 0)
        return is_mounted(tmp_path)

    assert privately(work) and not is_mounted(tmp_path)
