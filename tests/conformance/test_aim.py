from typing import Any

from tests.conformance.aim import put_first


def test_values_of_node_begin_a_body_whatever_else_was_generated() -> None:
    body: dict[str, Any] = {"x" * 300: 1, "plaintext": [1]}
    put_first(body, {"plaintext": "cGxhaW4=", "signature": "AA=="})
    assert list(body.items()) == [("plaintext", "cGxhaW4="), ("signature", "AA=="), ("x" * 300, 1)]
