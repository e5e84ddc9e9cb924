from pathlib import Path

from hawker.api.contract.certificate import ImportCertificateRequest
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode


def test_the_platforms_own_names_are_listed_with_what_is_shown_for_them(hawker: Hawker) -> None:
    heading, wide, api = (line.split() for line in hawker("node", "certs", "list").out.splitlines())
    assert heading == ["HOSTNAME", "STATUS", "SOURCE", "ISSUER", "EXPIRES", "ERROR"]
    assert wide[:3] == ["*.apps.example.com", "active", "imported"]
    assert api == ["api.example.com", "missing", "-", "-", "-", *"the authority is away".split()]


def test_one_is_imported_from_two_files_and_removed(hawker: Hawker, node: FakeNode, tmp_path: Path) -> None:
    (tmp_path / "chain.pem").write_text("chain")
    (tmp_path / "key.pem").write_text("key")
    files = ("--chain", str(tmp_path / "chain.pem"), "--key", str(tmp_path / "key.pem"))
    made = hawker("node", "certs", "import", "api.example.com", *files)
    assert made.status == 0 and "imported" in made.out
    asked = node.call("import_platform_certificate").body
    assert asked == ImportCertificateRequest(hostname="api.example.com", fullchain="chain", private_key="key")
    assert hawker("node", "certs", "remove", "api.example.com").status == 0
    assert node.call("delete_platform_certificate").params.hostname == "api.example.com"
