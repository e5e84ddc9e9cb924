"""Certificates of nodes: by whom they are issued, and whom they name."""

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.x509.oid import ExtensionOID

from hawker.auth.node_certificate import NodeAuthority, NodePapers, identity_of
from hawker.auth.peer_key import app_bundle_key, authority_key, peer_token
from hawker.http.mutual_tls import AUTHORITIES, name_of
from hawker.ids import NodeId

NODE = NodeId("0badcafe")
KEY, OTHER = b"k" * 32, b"o" * 32


def parts(pem: str) -> tuple[x509.Certificate, list[x509.Certificate]]:
    own, _, authorities = pem.partition(AUTHORITIES)
    return x509.load_pem_x509_certificate(own[own.index("-----BEGIN CERT") :].encode()), list(
        x509.load_pem_x509_certificates(authorities.encode())
    )


def test_a_certificate_names_its_node_and_is_issued_by_the_clusters_key() -> None:
    own, (authority,) = parts(identity_of(NODE, [KEY]))
    own.verify_directly_issued_by(authority)
    names = own.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
    assert isinstance(names, x509.SubjectAlternativeName)
    assert names.get_values_for_type(x509.DNSName) == [name_of(NODE)]
    basic = own.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not basic.ca, "a node's certificate issues none"


def test_every_node_has_the_same_authority_and_other_keys_have_others() -> None:
    assert NodeAuthority(KEY).pem == NodeAuthority(KEY).pem != NodeAuthority(OTHER).pem
    key = NodeAuthority(KEY)
    public = x509.load_pem_x509_certificate(key.pem.encode()).public_key()
    assert isinstance(public, Ed25519PublicKey)
    assert authority_key(KEY) not in (app_bundle_key(KEY), peer_token(KEY).encode())


def test_while_keys_change_the_first_issues_and_all_are_trusted() -> None:
    own, authorities = parts(identity_of(NODE, [OTHER, KEY]))
    assert [each.subject for each in authorities] != []
    own.verify_directly_issued_by(authorities[0])
    assert len(authorities) == 2


def test_papers_stay_the_same_until_the_keys_are_others() -> None:
    keys = [KEY]
    papers = NodePapers(NODE, lambda: keys)
    first = papers()
    assert papers() == first
    keys[:] = [OTHER]
    assert papers() != first
