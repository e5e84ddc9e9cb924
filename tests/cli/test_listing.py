from datetime import timedelta

import click
import msgspec
import pytest

from hawker.api.contract.app import LIST_APPS, AppList, AppParams
from hawker.api.contract.machine import LIST_MACHINES, ImageRef, ListMachinesQuery, Machine
from hawker.api.outgoing import RouteCodecs
from hawker.api.route import Page
from hawker.cli.listing import (
    Listed,
    MachineSelection,
    ShownImage,
    ShownMachine,
    image_name,
    listing,
    query_of,
    read_machines,
)
from hawker.cli.target import Target
from hawker.errors import NotFound
from hawker.log import Secret
from hawker.machine import State
from tests.cli.fake_node import AT, DIGEST, TOKEN, FakeNode, machine

_ALL = MachineSelection(app=None, states=(), region=None, metadata=(), everything=False)


def shown(name: str) -> ShownMachine:
    return msgspec.convert(machine(name=name), ShownMachine, from_attributes=True)


def test_list_has_a_line_for_each_machine() -> None:
    text = listing([Listed("shop", shown(name="web"))], AT + timedelta(hours=3))
    head, row = (line.split() for line in click.unstyle(text).splitlines())
    assert head == ["ID", "NAME", "APP", "STATE", "IMAGE", "AGE"]
    assert row == ["3d8f0000000001", "web", "shop", "started", "…gistry.local/web:3", "3", "h"]


def test_a_wide_list_has_hosts_regions_and_addresses_too() -> None:
    there = msgspec.structs.replace(shown(name="web"), host="0000000a")
    text = listing([Listed("shop", there)], AT + timedelta(hours=3), wide=True)
    head, row = (line.split() for line in click.unstyle(text).splitlines())
    assert head == ["ID", "NAME", "APP", "STATE", "HOST", "REGION", "IMAGE", "ADDRESS", "AGE"]
    assert row[3:] == ["started", "0000000a", "local", "registry.local/web:3", "fdaa::3", "3", "h"]


def test_a_list_of_usual_names_fits_80_columns() -> None:
    image = ShownImage(registry="registry.example.org:5000", repository="team/website", tag="2026-01-02", digest=DIGEST)
    long = msgspec.structs.replace(shown(name="rough-dune-6199"), image_ref=image)
    there = msgspec.structs.replace(long, region="ams")
    text = click.unstyle(listing([Listed("shop", long), Listed("shop", there)], AT + timedelta(hours=3)))
    assert max(map(len, text.splitlines())) <= 80
    assert "REGION" in text and "…website:2026-01-02" in text


def test_image_without_a_tag_is_named_by_its_digest() -> None:
    image = ImageRef(registry="", repository="hawker/hello", tag="", digest=DIGEST)
    assert image_name(image) == "hawker/hello@sha256:abababababab"


@pytest.mark.parametrize(
    "selection",
    [
        _ALL,
        MachineSelection(
            app="shop",
            states=(State.STARTED, State.FAILED),
            region="ams, fra",
            metadata=(("a&b", "c=d ä"), ("x", "1"), ("x", "2")),
            everything=True,
        ),
    ],
)
def test_a_short_list_asks_as_a_client_of_the_whole_api_does(selection: MachineSelection) -> None:
    query = ListMachinesQuery(
        state=selection.states,
        region=selection.region,
        metadata=dict(selection.metadata),
        include_deleted=selection.everything,
        summary=True,
    )
    outgoing = RouteCodecs(LIST_MACHINES).outgoing("", AppParams(app_name="shop"), query, None)
    assert sorted(outgoing.target.partition("?")[2].split("&")) == sorted(query_of(selection)[1:].split("&"))
    assert (LIST_APPS.path, LIST_MACHINES.path) == ("/v1/apps", "/v1/apps/{app_name}/machines")
    assert (LIST_APPS.response, LIST_MACHINES.response) == (AppList, Page[Machine])


@pytest.mark.parametrize(("part", "whole"), [(ShownMachine, Machine), (ShownImage, ImageRef)])
def test_the_shown_columns_are_part_of_the_answer(part: type[msgspec.Struct], whole: type[msgspec.Struct]) -> None:
    names = {field.name: field.encode_name for field in msgspec.structs.fields(whole)}
    assert {field.name: field.encode_name for field in msgspec.structs.fields(part)}.items() <= names.items()


def test_machines_of_all_apps_are_read(node: FakeNode, url: str) -> None:
    node.add("shop", machine("aa00000000000a"))
    node.add("jobs", machine("bb00000000000b"))
    found = read_machines(Target(f"{url}/", Secret(TOKEN)), _ALL)
    assert found is not None
    assert [(each.app, each.machine.id) for each in found] == [("shop", "aa00000000000a"), ("jobs", "bb00000000000b")]


@pytest.mark.parametrize("token", [None, Secret("wrong")])
def test_refusal_is_left_to_a_client_of_the_whole_api(url: str, token: Secret | None) -> None:
    assert read_machines(Target(url, token), _ALL) is None


def test_app_that_is_gone_is_left_to_a_client_of_the_whole_api(node: FakeNode, url: str) -> None:
    node.failures["list_machines"] = NotFound("gone")
    node.add("shop", machine())
    assert read_machines(Target(url, Secret(TOKEN)), _ALL) is None


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "https://127.0.0.1:1", "http://127.0.0.1:1", "nonsense"])
def test_address_without_plain_http_is_left_to_a_client_of_the_whole_api(url: str) -> None:
    assert read_machines(Target(url, None), _ALL) is None
