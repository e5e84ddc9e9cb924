"""Runs of the simulator as its tests need them: of chosen deeds, and quiet ones."""

from hawker.sim.worker.operation import NATURE, Deed, Verb
from hawker.sim.worker.plan import Plan

ANN = "ann"


def order(at: float = 1.0, label: str = "ann-1", word: str = "no", number: int = 1) -> Deed:
    return Deed(number, at, ANN, Verb.CREATE, label, 256, word)


def call(verb: Verb, at: float, label: str = "ann-1", amount: float = 1.0, word: str = "", number: int = 2) -> Deed:
    return Deed(number, at, ANN, verb, label, amount, word)


def blow(verb: Verb, at: float, amount: float = 1.0, **fields: object) -> Deed:
    return Deed(9, at, NATURE, verb, amount=amount, **fields)  # type: ignore[arg-type]


def plan(*deeds: Deed, seed: int = 1, **fields: object) -> Plan:
    return Plan(seed, deeds, **fields)  # type: ignore[arg-type]
