import stat
from pathlib import Path

import pytest

from hawker.clock import ManualClock, SystemClock
from hawker.errors import CannotStart, Fault
from hawker.vault import KEY_BYTES, Vault, load_or_create_key

KEY = bytes(range(KEY_BYTES))


@pytest.fixture
def vault() -> Vault:
    return Vault(KEY, ManualClock())


def test_a_sealed_value_can_be_opened_and_not_read(vault: Vault) -> None:
    sealed = vault.seal("shop/KEY", b"value of it")
    assert vault.open("shop/KEY", sealed) == b"value of it"
    assert b"value" not in sealed and vault.seal("shop/KEY", b"value of it") != sealed


def test_a_sealed_value_belongs_to_its_owner_and_to_the_key(vault: Vault) -> None:
    sealed = vault.seal("shop/KEY", b"v")
    other = Vault(bytes(KEY_BYTES), ManualClock())
    for opener, owner in ((vault, "shop/OTHER"), (other, "shop/KEY")):
        with pytest.raises(Fault, match="set it again"):
            opener.open(owner, sealed)


@pytest.mark.parametrize("place", [0, 5, 13, -1])
def test_no_byte_can_be_changed(vault: Vault, place: int) -> None:
    sealed = bytearray(vault.seal("shop/KEY", b"v"))
    sealed[place] ^= 1
    with pytest.raises(Fault):
        vault.open("shop/KEY", bytes(sealed))


@pytest.mark.parametrize("sealed", [b"", b"short", b"x" * 13])
def test_a_value_not_sealed_is_refused(vault: Vault, sealed: bytes) -> None:
    with pytest.raises(Fault):
        vault.open("shop/KEY", sealed)


def test_a_digest_tells_values_apart_only_to_who_has_the_key(vault: Vault) -> None:
    assert vault.digest("a/K", b"v") == vault.digest("a/K", b"v") != vault.digest("a/K", b"w")
    assert vault.digest("a/K", b"v") != vault.digest("b/K", b"v")
    assert vault.digest("a/K", b"v") != Vault(bytes(KEY_BYTES), ManualClock()).digest("a/K", b"v")


def test_first_boot_makes_a_key_that_only_its_owner_can_read(tmp_path: Path) -> None:
    made = load_or_create_key(tmp_path / "key", SystemClock())
    assert len(made) == KEY_BYTES and stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert load_or_create_key(tmp_path / "key", SystemClock()) == made


def test_a_damaged_key_is_refused_rather_than_replaced(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(CannotStart, match="is damaged"):
        load_or_create_key(tmp_path / "key", SystemClock())
