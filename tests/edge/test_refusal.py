"""The codes of the edge's own answers."""

from hawker.edge.refusal import Code, ProxyError


def test_each_code_has_a_status_of_its_kind_and_words() -> None:
    for code in Code:
        assert 400 <= code.status < 600 and code.words
        assert (code.status < 500) == (code.name.startswith(("HB", "HC")) or code is Code.PR02)


def test_a_refusal_says_the_words_of_its_code_unless_it_knows_better() -> None:
    assert str(ProxyError(Code.PR01)) == Code.PR01.words
    assert ProxyError(Code.PC01, "told", "known").told == "told"
