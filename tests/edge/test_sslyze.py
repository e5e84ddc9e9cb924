"""TLS of the edge, as sslyze judges it beside Mozilla's recommendation for servers of today."""

import re
from pathlib import Path

import anyio
import pytest

from tests.certificates import new_key
from tests.clients.program import INSTALLED, needs
from tests.edge.edge_kit import OK, PlayedHost, app_server, route, says
from tests.edge.test_tls_connection import HTTPS, certify, sealed
from tests.ports import free_port

SSLYZE = INSTALLED / "sslyze/bin/sslyze"
NAME = "shop.example.com"
EXPECTED = {
    "certificate_path_validation": "the root is the tests' own",
    "maximum_certificate_lifespan": "it is valid for all years in which tests run",
    "tls_curves": "two more of OpenSSL's, X448 and P-521: Python 3.11 names one curve or none",
}


@pytest.mark.long(reason="hundreds of handshakes of a stranger; tests/edge/test_tls_connection.py has our own")
@pytest.mark.parametrize("kind", ["p256", "rsa2048"])
async def test_sslyze_finds_nothing_that_is_not_known(host: PlayedHost, kind: str, tmp_path: Path) -> None:
    needs(SSLYZE, "sslyze", "make judges-setup")
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=HTTPS))
        await certify(host, sealed(NAME, key=new_key(kind)))
        options = ("--mozilla_config=intermediate", "--early_data", "--resum", f"--sni={NAME}")
        said = (await anyio.run_process((str(SSLYZE), *options, f"127.0.0.1:{port}"), check=False)).stdout.decode()
    scanned, _, compared = said.partition("COMPLIANCE AGAINST")
    assert set(re.findall(r"^ +\* (\w+): ", compared, re.MULTILINE)) == EXPECTED.keys(), said
    assert scanned.count("OK - ") > 10 and "VULNERABLE - " not in scanned, said
    assert re.search(r"Early Data:\s+Not Supported", scanned), "what comes before the handshake's end can come twice"
