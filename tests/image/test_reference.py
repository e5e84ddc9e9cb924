"""Facts about what users may write for an image."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.ids import Digest
from hawker.image.failure import BadImage
from hawker.image.reference import (
    ArchiveKind,
    ArchiveReference,
    DigestReference,
    HelloReference,
    LayoutReference,
    Reference,
    RegistryReference,
    digest_of,
    hex_of,
    is_digest,
    parse,
    parse_digest,
)


def test_digest_of_content_is_its_sha256() -> None:
    empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digest_of(b"") == empty
    assert hex_of(digest_of(b"")) == empty[7:]
    assert parse_digest(empty) == empty


@pytest.mark.parametrize(
    "text", ["", "sha256:", "sha256:" + "0" * 63, "sha256:" + "A" * 64, "sha512:" + "0" * 128, "sha256:../" + "0" * 61]
)
def test_other_forms_are_refused(text: str) -> None:
    assert not is_digest(text)
    with pytest.raises(BadImage, match="is not sha256: and 64 lowercase hex characters"):
        parse_digest(text)


def test_newline_at_the_end_is_refused() -> None:
    assert not is_digest(digest_of(b"") + "\n")


_D = Digest("sha256:" + "ab" * 32)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("debian", RegistryReference("docker.io", "library/debian", "latest")),
        ("debian:12", RegistryReference("docker.io", "library/debian", "12")),
        ("nginx/nginx", RegistryReference("docker.io", "nginx/nginx", "latest")),
        ("docker.io/debian", RegistryReference("docker.io", "library/debian", "latest")),
        ("index.docker.io/library/debian:12", RegistryReference("docker.io", "library/debian", "12")),
        ("localhost/app", RegistryReference("localhost", "app", "latest")),
        ("localhost:5000/app:v1", RegistryReference("localhost:5000", "app", "v1")),
        ("127.0.0.1:5000/a/b/c", RegistryReference("127.0.0.1:5000", "a/b/c", "latest")),
        ("[::1]:5000/app", RegistryReference("[::1]:5000", "app", "latest")),
        ("ghcr.io/owner/app.web_x--y:1.2-rc_3", RegistryReference("ghcr.io", "owner/app.web_x--y", "1.2-rc_3")),
        ("REGISTRY/app", RegistryReference("REGISTRY", "app", "latest")),
        (f"debian@{_D}", RegistryReference("docker.io", "library/debian", None, _D)),
        (f"ghcr.io/a/b:v1@{_D}", RegistryReference("ghcr.io", "a/b", "v1", _D)),
        (_D, DigestReference(_D)),
        ("oci:/images/web", LayoutReference("/images/web")),
        ("oci:/images/web:v1", LayoutReference("/images/web", "v1")),
        ("oci:/images/a:b/web", LayoutReference("/images/a:b/web")),
        ("oci-archive:/web.tar", ArchiveReference(ArchiveKind.OCI, "/web.tar")),
        ("docker-archive:/a b/web.tar:v1", ArchiveReference(ArchiveKind.DOCKER, "/a b/web.tar:v1")),
        ("hawker/hello", HelloReference()),
        ("hawker/hello:latest", HelloReference()),
        ("docker.io/hawker/hello", RegistryReference("docker.io", "hawker/hello", "latest")),
        (f"hawker/hello@{_D}", HelloReference(_D)),
        (f"hawker/hello:latest@{_D}", HelloReference(_D)),
        (f"/hawker/hello:latest@{_D}", HelloReference(_D)),
        (f"//images/web:v1@{_D}", DigestReference(_D)),
    ],
)
def test_reference_is_read_as_docker_would(text: str, wanted: Reference) -> None:
    assert parse(text) == wanted
    assert parse(str(wanted)) == wanted


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("a" * 5000, "too long"),
        ("debian\n", "unprintable"),
        ("Debian", "'Debian' is not a repository name"),
        ("../etc/passwd", "'..' is not a host name"),
        ("library/../etc", "is not a repository name"),
        ("a//b", "is not a repository name"),
        ("debian:", "'' is not a tag"),
        ("debian:-x", "'-x' is not a tag"),
        ("debian:v1:v2", "'v1:v2' is not a tag"),
        ("debian:" + "a" * 129, "is not a tag"),
        ("debian@sha256:123", "what follows @"),
        ("hawker/hello@sha256:123", "what follows @"),
        (f"debian@{_D}x", "what follows @"),
        ("host.example/" + "a" * 250, "longer than 255"),
        ("a_b.example/app", "is not a host name"),
        ("https://host.example/debian", "is not a host name"),
        ("user@host/app", "what follows @"),
        ("oci:images/web", "must be absolute"),
        ("oci:/images/web:", "'' is not a tag"),
        ("oci-archive:web.tar", "must be absolute"),
        ("docker-archive:", "must be absolute"),
        ("sha256:123", "is not sha256:"),
    ],
)
def test_bad_reference_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(BadImage, match=re.escape(says)):
        parse(text)


@given(st.text(alphabet="abAB01.-_:/@[]% \t", max_size=40))
def test_accepted_reference_round_trips(text: str) -> None:
    try:
        reference = parse(text)
    except BadImage:
        return
    assert parse(str(reference)) == reference
    assert ".." not in str(reference).split("/")


def test_text_of_a_reference_is_what_its_kind_says() -> None:
    assert str(parse("debian")) == "docker.io/library/debian:latest"
    assert str(parse("hawker/hello")) == "hawker/hello:latest"
