import pytest

from hawker.api.grant import Everything
from hawker.auth.image_names import check_image_names, check_registry_name
from hawker.config import MachineConfig
from hawker.config.machine import Container
from hawker.errors import Forbidden
from hawker.permission import Attempt


class Tenant:
    """Good for an app and what belongs to it, as a narrowed token is."""

    name = "alpha"
    token_ids = ()
    root = False

    def permits(self, attempt: Attempt) -> bool:
        return attempt.app == "alpha"

    def check(self, attempt: Attempt) -> None:
        if not self.permits(attempt):
            raise Forbidden("limited to app alpha")


INSIDE = [
    "oci:/etc",
    "oci-archive:/root/.ssh/id_rsa",
    "docker-archive:/var/lib/hawker/machines/1/rootfs/tmp/./f",
    "127.0.0.1:5000/x:1",
    "localhost/x",
    "localhost:5000/x",
    "[::1]:5000/x",
    "10.0.0.7:5000/x",
    "192.168.1.1/x",
    "169.254.169.254/x",
    "0.0.0.0:80/x",
    "100.100.100.200/x",
]


@pytest.mark.parametrize("image", INSIDE)
def test_tenant_cannot_name_what_is_inside_of_a_node(image: str) -> None:
    with pytest.raises(Forbidden, match="only a token that may write the node"):
        check_image_names(Tenant(), MachineConfig(image=image), ())
    check_image_names(Everything(), MachineConfig(image=image), ())


def test_tenant_cannot_name_it_in_a_container_either() -> None:
    config = MachineConfig(containers=(Container(name="a", image="app"), Container(name="b", image="oci:/etc")))
    with pytest.raises(Forbidden, match="oci:/etc"):
        check_image_names(Tenant(), config, ())


@pytest.mark.parametrize("image", ["hawker/hello", "nginx", "ghcr.io/a/b:1", "8.8.8.8/x", "not a name", ""])
def test_tenant_names_what_is_anybodys(image: str) -> None:
    check_image_names(Tenant(), MachineConfig(image=image), ())


def test_listed_registry_is_anybodys_wherever_it_is() -> None:
    check_image_names(Tenant(), MachineConfig(image="127.0.0.1:5000/x:1"), frozenset({"127.0.0.1:5000"}))


@pytest.mark.parametrize("registry", ["127.0.0.1:9090", "localhost:5000", "[::1]", "10.0.0.7", "169.254.169.254:80"])
def test_tenant_has_no_registry_asked_that_is_inside_of_a_node(registry: str) -> None:
    with pytest.raises(Forbidden, match="only a token that may write the node names a registry"):
        check_registry_name(Tenant(), registry, ())
    check_registry_name(Everything(), registry, ())
    check_registry_name(Tenant(), registry, frozenset({registry}))
    check_registry_name(Tenant(), "registry.example:5000", ())
