from pathlib import Path

import pytest

from hawker.api.contract.certificate import ImportCertificateRequest
from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode


def test_certificates_are_listed(hawker: Hawker) -> None:
    heading, row = hawker("certs", "list", "-a", "shop").out.splitlines()
    assert heading.split()[0] == "HOSTNAME" and row.split()[:3] == ["*.example.com", "active", "yes"]


def test_one_is_imported_from_two_files(hawker: Hawker, node: FakeNode, tmp_path: Path) -> None:
    (tmp_path / "chain.pem").write_text("chain")
    (tmp_path / "key.pem").write_text("key")
    done = hawker(
        *("certs", "import", "-a", "shop", "shop.example.com"),
        *("--chain", str(tmp_path / "chain.pem"), "--key", str(tmp_path / "key.pem")),
    )
    assert done.status == 0 and "Test Root" in done.out and "203.0.113.5" in done.out
    asked = node.call("import_certificate").body
    assert asked == ImportCertificateRequest(hostname="shop.example.com", fullchain="chain", private_key="key")


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"x" * 65_537])
def test_a_file_that_cannot_be_read_is_said_before_anybody_is_asked(
    hawker: Hawker, node: FakeNode, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "key.pem").write_bytes(content)
    (tmp_path / "chain.pem").write_text("chain")
    files = ("--chain", str(tmp_path / "chain.pem"), "--key", str(tmp_path / "key.pem"))
    assert hawker("certs", "import", "-a", "shop", "shop.example.com", *files).status == ExitStatus.USAGE
    assert not node.calls


def test_a_check_says_where_a_name_leads_and_what_is_wrong(hawker: Hawker, node: FakeNode) -> None:
    out = hawker("certs", "check", "-a", "shop", "*.example.com").out
    assert "leads to    ::9" in out and "point it here" in out
    assert node.call("check_certificate").params.hostname == "*.example.com"
    assert "leads to" not in hawker("certs", "show", "-a", "shop", "shop.example.com").out


def test_one_is_ordered_and_one_is_removed(hawker: Hawker, node: FakeNode) -> None:
    assert hawker("certs", "add", "-a", "shop", "shop.example.com").status == 0
    assert node.call("order_certificate").body.hostname == "shop.example.com"
    assert hawker("certs", "remove", "-a", "shop", "shop.example.com").status == 0
    assert node.call("delete_certificate").params.hostname == "shop.example.com"
