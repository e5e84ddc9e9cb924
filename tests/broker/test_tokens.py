import stat
from pathlib import Path

import pytest

from hawker.broker.tokens import RootToken, load_or_create_token
from hawker.clock import SystemClock
from hawker.errors import CannotStart, Unauthorized
from hawker.log import Secret

pytestmark = pytest.mark.anyio


def test_first_boot_writes_a_token_that_only_its_owner_can_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = load_or_create_token(path, SystemClock())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().strip() == token.reveal() and token.reveal().startswith("hwk_")


def test_a_later_boot_reads_the_same_token(tmp_path: Path) -> None:
    first = load_or_create_token(tmp_path / "token", SystemClock())
    assert load_or_create_token(tmp_path / "token", SystemClock()).reveal() == first.reveal()


def test_an_empty_token_file_is_refused_rather_than_accepted(tmp_path: Path) -> None:
    (tmp_path / "token").touch()
    with pytest.raises(CannotStart, match="is empty"):
        load_or_create_token(tmp_path / "token", SystemClock())


@pytest.mark.parametrize("header", ["Bearer hwk_1", "FlyV1 hwk_1", "Bearer other,hwk_1", "FlyV1 other, hwk_1"])
async def test_the_token_is_accepted_in_every_form_that_clients_send(header: str) -> None:
    assert await RootToken(Secret("hwk_1"))(header) == "root"


@pytest.mark.parametrize("header", [None, "", "Bearer ", "Bearer hwk_2", "hwk_1", "Basic hwk_1", "Bearer hwk_1x"])
async def test_anything_else_is_unauthorized(header: str | None) -> None:
    with pytest.raises(Unauthorized):
        await RootToken(Secret("hwk_1"))(header)
