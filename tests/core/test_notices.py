from __future__ import annotations

from typing import Any

import pytest

from leafward import Message, assistant, tool_result, user
from leafward.core import count_tokens
from leafward.core.notices import saved_tokens, shortening, shown_tokens, with_notices
from leafward.core.shortened_results import shorten_results

PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 99}}


def shown(part: dict[str, Any], size: int = 10) -> dict[str, Any]:
    (found,) = with_notices(assistant([part]), {"c": shortening(size)}).parts
    return found


AGENTSCOPE = {"type": "tool_result", "id": "c", "name": "look"}
UI = {"type": "tool-look", "toolCallId": "c", "state": "output-available", "input": {}}


@pytest.mark.parametrize(
    ("part", "key", "start"),
    [
        ({**AGENTSCOPE, "output": "0123456789abcdef"}, "output", "0123456789"),
        ({**AGENTSCOPE, "output": [{"type": "text", "text": "0123456789abcdef"}]}, "output", "0123456789"),
        ({"type": "tool_result", "tool_use_id": "c", "content": "0123456789abcdef"}, "content", "0123456789"),
        ({**AGENTSCOPE, "output": [PNG, {"type": "text", "text": "seen"}]}, "output", "[image: im"),
        ({**UI, "output": {"rows": [1, 2, 3, 4]}}, "output", '{"rows":[1'),
        ({**UI, "result": "0123456789abcdef"}, "result", "0123456789"),
        ({**UI, "state": "output-error", "errorText": "0123456789abcdef"}, "errorText", "0123456789"),
    ],
)
def test_a_shortened_result_shows_its_start_and_how_much_is_left_out(
    part: dict[str, Any], key: str, start: str
) -> None:
    found = shown(part)
    text = found[key] if isinstance(found[key], str) else found[key][0]["text"]

    assert text.startswith(f"{start}… [shortened: ")
    assert text.endswith(" characters are left out]")
    assert {name: value for name, value in found.items() if name != key} == {
        name: value for name, value in part.items() if name != key
    }


def test_a_result_that_is_short_enough_is_shown_as_it_is() -> None:
    part = {**AGENTSCOPE, "output": [{"type": "text", "text": "0123456789"}]}

    assert shown(part) == part


def test_shortening_again_counts_from_the_whole_result() -> None:
    whole = assistant([{**UI, "output": "x" * 5_000}])

    once = with_notices(whole, {"c": shortening(1_000)})
    again = with_notices(once, {"c": shortening(100)})

    assert again == with_notices(whole, {"c": shortening(100)})
    assert "4,900 of 5,000 characters" in str(again.parts)
    assert with_notices(once, {"c": shortening(1_030)}) == once


def test_results_of_other_calls_stay_whole() -> None:
    message = Message("tool", [{**AGENTSCOPE, "id": "other", "output": "x" * 500}])

    assert with_notices(message, {"c": shortening(10)}) == message
    assert saved_tokens(message, {"c": shortening(10)}) == 0


def test_results_are_shortened_alike_until_they_fit_and_short_ones_stay_whole() -> None:
    messages = [
        tool_result("a", "x" * 40_000, id="a"),
        tool_result("b", "short", id="b"),
        tool_result("c", "y" * 20_000, id="c"),
    ]

    found, results = shorten_results(messages, 1_000, count_tokens)

    assert 900 < sum(map(count_tokens, found)) <= 1_000
    assert found[1] is messages[1]
    assert [result.message_id for result in results] == ["a", "c"]
    assert results[0].notice == results[1].notice
    for before, after, result in zip([messages[0], messages[2]], [found[0], found[2]], results, strict=True):
        assert result.tokens == count_tokens(before) - count_tokens(after)


def test_images_in_a_result_give_way_with_its_text() -> None:
    message = tool_result("a", [PNG] * 20, id="a")

    (found,), (result,) = shorten_results([message], 200, count_tokens)

    assert count_tokens(message) > 20_000
    assert count_tokens(found) <= 200
    assert result.tokens == count_tokens(message) - count_tokens(found)


def test_messages_without_results_cannot_be_shortened() -> None:
    messages = [user("x" * 40_000), assistant([{"type": "tool_use", "id": "c", "name": "look", "input": {}}])]

    assert shorten_results(messages, 100, count_tokens) == (messages, [])


def test_a_result_that_its_notice_would_make_longer_stays() -> None:
    message = tool_result("a", "twelve chars", id="a")

    assert shorten_results([message], 1, count_tokens) == ([message], [])


@pytest.mark.parametrize("factor", [1, 37])
def test_a_notice_saves_as_much_of_another_count_as_of_ours(factor: int) -> None:
    message = tool_result("c", "word " * 1000)
    whole = count_tokens(message)

    shown = shown_tokens(message, {"c": shortening(50)}, factor * whole)

    assert shown // factor == count_tokens(with_notices(message, {"c": shortening(50)}))
    assert shown_tokens(message, {}, factor * whole) == factor * whole
