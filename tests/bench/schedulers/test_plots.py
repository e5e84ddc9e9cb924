from xml.etree import ElementTree

from bench.schedulers.plots import Axis, plot, plots
from tests.bench.schedulers.pieces import played


def test_each_picture_has_a_line_for_each_policy() -> None:
    reports = [played(policy, hosts=hosts, count=50) for hosts in (2, 20) for policy in ("spread", "market")]
    pictures = plots(reports)
    assert set(pictures) == {"work.svg", "placement.svg", "refused.svg", "balance.svg", "pulled.svg"}
    for picture in pictures.values():
        root = ElementTree.fromstring(picture)
        assert sum(element.tag.endswith("polyline") for element in root.iter()) == 2
        assert sum(element.tag.endswith("circle") for element in root.iter()) == 4


HOSTS = Axis(label="hosts", logarithmic=True, least=1)
LINES = {"a": [(10.0, 1.0), (100.0, 42.0)], "b <&>": [(10.0, 3.0), (1000.0, 7.5)]}


def test_the_same_numbers_give_the_same_bytes_and_they_are_xml() -> None:
    picture = plot("A & B", HOSTS, Axis(label="ms"), LINES)
    assert picture == plot("A & B", HOSTS, Axis(label="ms"), LINES)
    root = ElementTree.fromstring(picture)
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"A & B", "b <&>", "hosts", "ms", "10", "1,000", "50"} <= set(texts)


def test_each_line_has_its_points() -> None:
    root = ElementTree.fromstring(plot("t", HOSTS, Axis(label="y"), LINES))
    assert sum(element.tag.endswith("circle") for element in root.iter()) == 4
    assert sum(element.tag.endswith("polyline") for element in root.iter()) == 2


def test_axes_end_at_round_numbers_and_hold_all_values() -> None:
    assert Axis(label="").span([3.0, 42.0]) == (0.0, 50.0)
    assert HOSTS.span([10.0, 3000.0]) == (10.0, 10_000.0)
    assert HOSTS.span([0.0, 5.0]) == (1.0, 10.0)
    assert HOSTS.ticks((1.0, 1000.0)) == [1.0, 10.0, 100.0, 1000.0]


def test_nothing_to_show_is_shown() -> None:
    empty: list[dict[str, list[tuple[float, float]]]] = [{}, {"none": []}, {"zero": [(1.0, 0.0)]}]
    for lines in empty:
        ElementTree.fromstring(plot("t", HOSTS, Axis(label="y"), lines))


def test_a_value_has_its_share_of_the_axis() -> None:
    assert HOSTS.share(10.0, (1.0, 100.0)) == 0.5 and Axis(label="").share(2.0, (0.0, 8.0)) == 0.25
