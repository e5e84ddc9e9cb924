import pytest

from hawker.image.reach import PullReach, is_inside, is_loopback


def test_only_loopback_and_listed_hosts_are_plain() -> None:
    reach = PullReach(frozenset({"lab.example:5000", "old.example"}))
    assert reach.scheme("localhost:5000") == "http"
    assert reach.scheme("[::1]:5000") == "http"
    assert reach.scheme("lab.example:5000") == "http"
    assert reach.scheme("old.example:9") == "http"
    assert reach.scheme("lab.example") == "https"
    assert reach.scheme("registry.example") == "https"


@pytest.mark.parametrize(
    ("host", "wanted"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("localhost.example", False),
     ("10.0.0.1", False), ("127.0.0.1.example", False), ("", False), (None, False)],
)  # fmt: skip
def test_loopback_is_known(host: str | None, wanted: bool) -> None:
    assert is_loopback(host) is wanted


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "168.63.129.16", "100.100.100.200",
     "192.0.0.192", "0.0.0.0", "224.0.0.1", "::", "::1", "fe80::1%eth0", "fd00:ec2::254", "::ffff:127.0.0.1",
     "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "[::1]", "localhost", "LOCALHOST.", "a.localhost"],
)  # fmt: skip
def test_inside_is_inside_however_it_is_written(address: str) -> None:
    assert is_inside(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2001:4860:4860::8888", "::ffff:8.8.8.8", "registry.example", ""])
def test_outside_is_not_inside(address: str) -> None:
    assert not is_inside(address)


LISTED = PullReach(frozenset({"plain.lan:5000"}), frozenset({"corp.lan", "10.0.0.7:5000"}))


@pytest.mark.parametrize(
    ("url", "registry", "before", "refused"),
    [
        ("https://r.example/v2/", "r.example", None, ""),
        ("http://r.example/v2/", "r.example", None, "refusing to speak http"),
        ("http://127.0.0.1:5000/v2/", "127.0.0.1:5000", None, ""),
        ("http://127.0.0.1:5001/v2/", "127.0.0.1:5000", None, "refusing to speak http"),
        ("http://127.0.0.1:5000/v2/", "r.example", None, "refusing to speak http"),
        ("https://127.0.0.1/v2/", "r.example", None, "not at a public address"),
        ("https://[::ffff:10.0.0.1]/v2/", "r.example", None, "not at a public address"),
        ("https://localhost/v2/", "r.example", None, "not at a public address"),
        ("https://10.0.0.7:5000/v2/", "r.example", None, ""),
        ("http://plain.lan:5000/v2/", "r.example", None, ""),
        ("http://plain.lan:5000/v2/", "r.example", "https://r.example/v2/", "from TLS to plain"),
        ("https://cdn.example/x", "r.example", "https://r.example/v2/", ""),
        ("https://[::1/v2/", "r.example", None, "no URL"),
        ("https://r.example:99999/v2/", "r.example", None, "no URL"),
    ],
)
def test_way_of_a_pull(url: str, registry: str, before: str | None, refused: str) -> None:
    said = LISTED.refusal(url, registry, before)
    assert (said is None) if not refused else (said is not None and refused in said)
