"""Names for machines that were given none: two words and a number, as people find them easy to say."""

from hawker.clock import Clock

_FIRST = """
amber ashen bold brisk calm clear cold crisp dark dawn deep dry dusty early fair faint fleet gentle gilded grand
hardy hazy hidden high icy keen late light lively long loud lucky mellow mild misty noble old pale plain proud
quick quiet rapid rare rough royal rustic sandy sharp shy silent slow small snowy soft spare still stout sunny
tall tidy warm wild
""".split()
_SECOND = """
bay beach bell birch bird breeze brook bush cart cliff cloud coast cove crow dune elm field fire fjord fog ford
forest frost gate glade grove gull harbor heath hill inlet isle kiln lake lane lark leaf marsh meadow mill moor
moss oak path peak pier pine pond quay rain reef ridge river rock shore sky smith snow stall stone stream tide
vale wind wood
""".split()


def new_name(clock: Clock) -> str:
    """For example `quiet-stall-4127`; not unique by itself."""
    first = _FIRST[int(clock.random() * len(_FIRST))]
    second = _SECOND[int(clock.random() * len(_SECOND))]
    return f"{first}-{second}-{int(clock.random() * 9000) + 1000}"
