"""The keywords of `open_store`, and what reaches the stores that other packages bring."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from inspect import Parameter, signature
from typing import Any

import pytest

from leafward import ConfigurationError, blocking, open_store
from leafward.stores import DEFAULT_MAX_MESSAGE_BYTES, Store, opening

ASKED: list[dict[str, Any]] = []
"""What the stores of this file were opened with."""


async def _opened(**keywords: Any) -> Store:
    ASKED.append(keywords)
    return await open_store("memory://")


async def open_plain(url: str) -> Store:
    return await _opened()


async def open_rich(
    url: str, *, region: str = "eu", client: object = None, durability: str = "process", max_message_bytes: int = 5
) -> Store:
    return await _opened(region=region, client=client, durability=durability, max_message_bytes=max_message_bytes)


async def open_anything(url: str, **keywords: Any) -> Store:
    return await _opened(**keywords)


@pytest.fixture(autouse=True)
def schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [EntryPoint(name, f"{__name__}:open_{name}", "leafward.stores") for name in ("plain", "rich", "anything")]
    monkeypatch.setattr(opening, "_foreign", lambda scheme=None: [one for one in found if scheme in (None, one.name)])
    ASKED.clear()


async def asked(url: str, **keywords: Any) -> dict[str, Any]:
    async with open_store(url, **keywords):
        return ASKED[-1]


def test_an_editor_sees_every_keyword_and_no_others() -> None:
    parameters = signature(open_store).parameters

    assert list(parameters) == [
        *("url", "durability", "max_message_bytes", "table_prefix", "key_prefix", "client", "options")
    ]
    assert {one.kind for name, one in parameters.items() if name != "url"} == {Parameter.KEYWORD_ONLY}
    assert list(signature(blocking).parameters.values()) == list(parameters.values())


async def test_a_store_of_another_package_gets_its_own_options() -> None:
    found = await asked("rich://x", options={"region": "us"})

    assert found == {
        "region": "us",
        "client": None,
        "durability": "power",
        "max_message_bytes": DEFAULT_MAX_MESSAGE_BYTES,
    }
    with blocking("rich://x", options={"region": "asia"}, max_message_bytes=7):
        assert (ASKED[-1]["region"], ASKED[-1]["max_message_bytes"]) == ("asia", 7)


async def test_a_keyword_reaches_every_store_that_takes_it() -> None:
    mine = object()

    found = await asked("rich://x", client=mine, durability="process", max_message_bytes=9)

    assert (found["client"], found["durability"], found["max_message_bytes"]) == (mine, "process", 9)
    assert await asked("anything://x", table_prefix="a_", options={"colour": "red"}) == {
        "durability": "power",
        "max_message_bytes": DEFAULT_MAX_MESSAGE_BYTES,
        "table_prefix": "a_",
        "colour": "red",
    }


async def test_a_store_that_takes_no_keyword_opens_without() -> None:
    assert await asked("plain://x") == {}


@pytest.mark.parametrize(
    ("url", "keywords", "named"),
    [
        ("plain://x", {"durability": "process"}, "plain:// does not take durability"),
        ("plain://x", {"max_message_bytes": 1}, "plain:// does not take max_message_bytes"),
        ("rich://x", {"table_prefix": "a"}, "rich:// does not take table_prefix"),
        ("rich://x", {"options": {"colour": "red", "size": 3}}, "rich:// does not take colour, size"),
        ("memory://", {"client": object()}, "memory:// does not take client"),
        ("memory://", {"options": {"colour": "red"}}, "memory:// does not take colour"),
        ("rich://x", {"options": {"durability": "power"}}, "open_store takes durability as a keyword"),
    ],
)
async def test_what_a_store_does_not_take_is_refused_by_name(url: str, keywords: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        open_store(url, **keywords)
    with pytest.raises(ConfigurationError, match=named):
        blocking(url, **keywords)

    assert ASKED == []
