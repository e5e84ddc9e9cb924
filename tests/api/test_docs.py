"""The page is whole in one file, names every call and body, and is sound HTML."""

import re
from functools import cache
from html.parser import HTMLParser

import pytest

from hawker.api.docs import docs
from hawker.api.openapi import openapi
from hawker.api.route import AnyRoute
from hawker.api.routes import ROUTES

_VOID = {"meta", "link", "br"}


@cache
def page() -> str:
    return docs(openapi(ROUTES, "1.2.3"))


class Sound(HTMLParser):
    """Fails at a tag that is closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)
        given = dict(attrs)
        self.ids += [value for name, value in given.items() if name == "id" and value]
        self.links += [value for name, value in given.items() if name == "href" and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _parsed() -> Sound:
    parser = Sound()
    parser.feed(page())
    parser.close()
    return parser


def test_every_tag_is_closed_and_every_link_leads_somewhere() -> None:
    parsed = _parsed()
    assert not parsed.open and len(set(parsed.ids)) == len(parsed.ids)
    inside = {link.removeprefix("#") for link in parsed.links if link.startswith("#")}
    assert inside <= set(parsed.ids)


def test_the_page_asks_no_other_host_for_anything() -> None:
    assert {link for link in _parsed().links if not link.startswith("#")} == {"/openapi.json"}
    assert not re.search(r"https?://|<script|src=|@import|url\(", page())


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_call_is_on_the_page(route: AnyRoute) -> None:
    assert f'id="{route.name}"' in page() and route.path in page()


def test_a_dark_and_a_light_page_exist() -> None:
    assert "prefers-color-scheme: dark" in page()


def test_text_is_escaped() -> None:
    assert "<html>" not in page().removeprefix("<!doctype html>") and "List an app&#x27;s machines" in page()
