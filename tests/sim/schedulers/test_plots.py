from xml.etree import ElementTree

from hawker.sim.schedulers.plots import plots
from tests.sim.schedulers.pieces import played


def test_each_picture_has_a_line_for_each_policy() -> None:
    reports = [played(policy, hosts=hosts, count=50) for hosts in (2, 20) for policy in ("spread", "market")]
    pictures = plots(reports)
    assert set(pictures) == {"work.svg", "placement.svg", "refused.svg", "balance.svg", "pulled.svg"}
    for picture in pictures.values():
        root = ElementTree.fromstring(picture)
        assert sum(element.tag.endswith("polyline") for element in root.iter()) == 2
        assert sum(element.tag.endswith("circle") for element in root.iter()) == 4
