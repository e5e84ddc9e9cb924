"""Answers about the network policies of apps. A change is in force once it is answered."""

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import instant
from hawker.api.contract.network_policy import (
    DELETE_POLICY,
    GET_POLICY,
    LIST_POLICIES,
    PUT_POLICY,
    NetworkPolicy,
    NetworkPolicyRequest,
    PolicyMachine,
    PolicyParams,
    PolicyPort,
    Rule,
    Selector,
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.config import validate_metadata
from hawker.errors import Fault, HawkerError, Unprocessable
from hawker.ids import is_machine_id
from hawker.netpolicy.policies import Policies, PolicyEnforcer
from hawker.record.app import PolicyRecord, PolicyRule, PolicySelector, PortRule
from hawker.store.contract import Store
from hawker.worker.apps import AppTable

MAX_RULES, MAX_PORTS, MAX_MACHINES, MAX_PAIRS, MAX_NAME = 64, 256, 256, 32, 63


class PolicyHandlers:
    def __init__(self, store: Store, enforcer: PolicyEnforcer, apps: AppTable, policies: Policies) -> None:
        self._store = store
        self._apps = apps
        self._policies, self._enforcer = policies, enforcer

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_POLICIES, self.list)
        handlers.on(PUT_POLICY, self.put)
        handlers.on(GET_POLICY, self.get)
        handlers.on(DELETE_POLICY, self.delete)

    async def list(self, call: Call[AppParams, NoQuery, None]) -> tuple[NetworkPolicy, ...]:
        app = self._apps.get(self._store, call.params.app_name)
        return tuple(map(_view, self._policies.list(app.name)))

    async def get(self, call: Call[PolicyParams, NoQuery, None]) -> NetworkPolicy:
        return _view(self._policies.get(call.params.app_name, call.params.policy_id))

    async def put(self, call: Call[AppParams, NoQuery, NetworkPolicyRequest]) -> NetworkPolicy:
        body = call.body
        selector, rules = _selector(body.selector), _rules(body.allowed)
        if not 1 <= len(body.name) <= MAX_NAME:
            raise Unprocessable(f"name: use 1 to {MAX_NAME} characters")
        refusal = await self._enforcer.refusal()
        if refusal:
            raise Unprocessable(f"network policies are not served by {refusal}")
        app = call.params.app_name
        record = await self._policies.put(app, policy_id=body.id, name=body.name, selector=selector, rules=rules)
        await self._in_force()
        return _view(record)

    async def delete(self, call: Call[PolicyParams, NoQuery, None]) -> None:
        await self._policies.delete(call.params.app_name, call.params.policy_id)
        await self._in_force()

    async def _in_force(self) -> None:
        try:
            await self._enforcer.renew()
        except (HawkerError, OSError) as error:
            raise Fault(f"what you asked for is kept and not in force yet, the node tries again: {error}") from error


def _selector(given: Selector) -> PolicySelector:
    """Raises `Unprocessable` naming the field."""
    machines, metadata = given.machines or (), given.metadata or {}
    if sum((bool(given.all), bool(machines), bool(metadata))) != 1:
        raise Unprocessable("selector: name exactly one of all, machines and metadata")
    if len(machines) > MAX_MACHINES or len(metadata) > MAX_PAIRS:
        raise Unprocessable(f"selector: names more than {MAX_MACHINES} machines or {MAX_PAIRS} pairs of metadata")
    for index, machine in enumerate(machines):
        if not is_machine_id(machine.id):
            raise Unprocessable(f"selector.machines[{index}].id: {machine.id!r:.40} is no id of a machine")
    try:
        validate_metadata(metadata)
    except Unprocessable as error:
        raise Unprocessable(f"selector.{error}") from error
    ids = tuple(dict.fromkeys(machine.id for machine in machines))
    return PolicySelector(all=bool(given.all), machines=ids, metadata=metadata)


def _rules(given: tuple[Rule, ...]) -> tuple[PolicyRule, ...]:
    if not 1 <= len(given) <= MAX_RULES:
        raise Unprocessable(f"rules: {len(given)} are not between 1 and {MAX_RULES}")
    return tuple(_rule(rule, f"rules[{index}]") for index, rule in enumerate(given))


def _rule(given: Rule, path: str) -> PolicyRule:
    if len(given.ports or ()) > MAX_PORTS:
        raise Unprocessable(f"{path}.ports: {len(given.ports or ())} are more than {MAX_PORTS}")
    for index, port in enumerate(given.ports or ()):
        if port.port is not None and not 1 <= port.port <= 65_535:
            raise Unprocessable(f"{path}.ports[{index}].port: {port.port} is not between 1 and 65535")
    ports = None if given.ports is None else tuple(PortRule(protocol=p.protocol, port=p.port) for p in given.ports)
    return PolicyRule(direction=given.direction, ports=ports)


def _view(record: PolicyRecord) -> NetworkPolicy:
    selector = record.selector
    return NetworkPolicy(
        id=record.id,
        name=record.name,
        selector=Selector(
            all=selector.all or None,
            machines=tuple(PolicyMachine(id=each) for each in selector.machines) or None,
            metadata=selector.metadata or None,
        ),
        allowed=tuple(map(_shown, record.rules)),
        created_at=instant(record.created_at),
        updated_at=instant(record.updated_at),
    )


def _shown(rule: PolicyRule) -> Rule:
    ports = None if rule.ports is None else tuple(PolicyPort(protocol=p.protocol, port=p.port) for p in rule.ports)
    return Rule(action="allow", direction=rule.direction, ports=ports)
