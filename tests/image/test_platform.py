"""Facts about choosing an image by platform."""

import pytest

from hawker.image.failure import BadImage
from hawker.image.manifest import Descriptor, Index, Platform
from hawker.image.platform import check_platform, choose, host_platform

_AMD = Platform(os="linux", architecture="amd64")
_ARM = Platform(os="linux", architecture="arm64", variant="v8")


def entry(name: str, platform: Platform | None, **annotations: str) -> Descriptor:
    return Descriptor(digest=name, platform=platform, annotations=annotations or None)


def test_this_hosts_platform_is_linux() -> None:
    assert host_platform().os == "linux"


def test_own_architecture_is_chosen() -> None:
    entries = (entry("win", Platform(os="windows", architecture="amd64")), entry("arm", _ARM), entry("amd", _AMD))
    assert choose(Index(manifests=entries), _AMD).digest == "amd"
    assert choose(Index(manifests=entries), _ARM).digest == "arm"


def test_own_variant_goes_before_none_before_others() -> None:
    plain, v9 = Platform(os="linux", architecture="arm64"), Platform(os="linux", architecture="arm64", variant="v9")
    assert choose(Index(manifests=(entry("v9", v9), entry("plain", plain), entry("v8", _ARM))), _ARM).digest == "v8"
    assert choose(Index(manifests=(entry("v9", v9), entry("plain", plain))), _ARM).digest == "plain"
    assert choose(Index(manifests=(entry("v9", v9),)), _ARM).digest == "v9"


def test_only_entry_without_a_platform_is_chosen() -> None:
    assert choose(Index(manifests=(entry("it", None),)), _AMD).digest == "it"


def test_attestation_is_no_image() -> None:
    about = Descriptor(
        digest="about",
        platform=Platform(os="unknown", architecture="unknown"),
        annotations={"vnd.docker.reference.type": "attestation-manifest"},
    )
    assert choose(Index(manifests=(about, entry("amd", _AMD))), _AMD).digest == "amd"


def test_absent_platform_is_refused_with_what_there_is() -> None:
    with pytest.raises(BadImage, match="no image for platform linux/amd64; there is: linux/arm64/v8"):
        choose(Index(manifests=(entry("arm", _ARM),)), _AMD)
    with pytest.raises(BadImage, match="there is: none"):
        choose(Index(manifests=()), _AMD)


def test_config_of_another_architecture_is_refused() -> None:
    check_platform("linux", "amd64", _AMD)
    check_platform("", "", _AMD)
    with pytest.raises(BadImage, match="no image for platform linux/amd64; there is: linux/s390x"):
        check_platform("linux", "s390x", _AMD)
