"""What search promises: every committed word, nothing that is gone, any query string."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from leafward import Message, Session, assistant, tool_result, user
from leafward.testing.settling import Settling

if TYPE_CHECKING:
    from leafward import SearchResult
    from leafward.stores import Store

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)

ODD_QUERIES = [
    "",
    " \t\n",
    '"',
    '""',
    '"coffee',
    'coffee"',
    '"" "" coffee',
    "coffee*",
    "*",
    "cof%",
    "_",
    "don't",
    "c++ (x",
    "multi-agent",
    "AND",
    "OR",
    "NOT",
    "coffee AND",
    "coffee OR NOT tea",
    "NEAR(coffee tea, 3)",
    "content:coffee",
    "session_id:other",
    "{coffee tea}: x",
    "^coffee",
    "-coffee",
    "coffee + tea",
    "'; DROP TABLE leafward_message; --",
    "\x00",
    "coffee\x00tea",
    "\ud800",
    "coffee\udfff",
    "\ufffd",
    "🦊",
    "\u0301",
    "\u200b",
    "ー",
    "。、",
    "\\",
    "((((((",
    "[a-z]+",
    "$where",
    "coffee " * 2_000,
    "x" * 100_000,
    "京" * 5_000,
    '"' * 999,
]


def _ids(results: list[SearchResult]) -> set[str]:
    return {result.id for result in results}


class _Finding(Settling):
    """Which messages a query finds."""

    async def test_words_are_anded(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages(
            [user("black coffee", id="1"), user("black tea", id="2"), user("coffee is mostly black", id="3")]
        )

        assert await self.found(store, session, "coffee black") == {"1", "3"}
        assert await self.found(store, session, "black") == {"1", "2", "3"}
        assert await self.found(store, session, "coffee tea") == set()
        assert await self.found(store, session, "milk") == set()

    async def test_letter_case_does_not_matter(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("Paris and ZÜRICH", id="1"))

        assert await self.found(store, session, "PARIS zürich") == {"1"}

    async def test_quotes_make_a_phrase(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user("a red car stopped", id="1"), user("the car was red", id="2")])

        assert await self.found(store, session, '"red car"') == {"1"}
        assert await self.found(store, session, "red car") == {"1", "2"}
        assert await self.found(store, session, '"red car" stopped') == {"1"}
        assert await self.found(store, session, '"car red"') == set()

    async def test_english_words_are_found_by_their_stem(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user("She was running tests", id="1"), user("deploy the server", id="2")])

        assert await self.found(store, session, "run") == {"1"}
        assert await self.found(store, session, "runs testing") == {"1"}
        assert await self.found(store, session, "deployed servers") == {"2"}

    @pytest.mark.parametrize(
        ("sentence", "words", "absent"),
        [
            ("我昨天在北京吃了烤鸭。", ["北京", "烤鸭", "昨天", "鸭", "我"], ["上海", "京北", "鹅"]),
            (
                "昨日は東京タワーに行きました。",
                ["東京", "タワー", "東京タワー", "行きました", "京"],
                ["大阪", "京東"],
            ),
            ("어제 서울에서 친구를 만났어요", ["서울", "친구", "만났어요", "울"], ["부산", "울서"]),
            ("新しいiPhone手机を买った", ["手机", "iPhone", "iphone手机"], ["机手"]),
        ],
    )
    async def test_cjk_words_are_found_inside_sentences(
        self, store: Store, sentence: str, words: list[str], absent: list[str]
    ) -> None:
        session = Session(store, "s")
        await session.append_messages([user(sentence, id="1"), user("nothing of the kind", id="2")])

        assert {word: await self.found(store, session, word) for word in words} == {word: {"1"} for word in words}
        assert {word: await self.found(store, session, word) for word in absent} == {
            word: set[str]() for word in absent
        }

    async def test_words_inside_names_of_code_are_found(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user("call parseUserRecord(x)", id="1"), user("set max_retry_count", id="2")])

        assert await self.found(store, session, "record") == {"1"}
        assert await self.found(store, session, "parseUserRecord") == {"1"}
        assert await self.found(store, session, "retry") == {"2"}
        assert await self.found(store, session, "max_retry_count") == {"2"}

    async def test_text_after_a_nul_is_found(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("before\x00behind", id="1"))

        assert await self.found(store, session, "behind") == {"1"}

    async def test_tool_calls_and_their_results_are_searched(self, store: Store) -> None:
        session = Session(store, "s")
        ai_sdk: dict[str, Any] = {
            "type": "tool-lookup",
            "toolCallId": "c",
            "state": "output-available",
            "input": {"city": "Lisbon"},
            "output": {"sky": "overcast"},
        }
        await session.append_messages(
            [
                Message(
                    "assistant",
                    [{"type": "tool_use", "id": "c", "name": "fetch", "input": {"q": "otters"}}],
                    id="1",
                ),
                tool_result("c", "seven badgers", name="fetch", id="2"),
                Message("assistant", [ai_sdk], id="3"),
                Message("user", [{"type": "tool_result", "tool_use_id": "c", "content": "one heron"}], id="4"),
            ]
        )

        assert await self.found(store, session, "otters") == {"1"}
        assert await self.found(store, session, "badgers") == {"2"}
        assert await self.found(store, session, "Lisbon overcast") == {"3"}
        assert await self.found(store, session, "heron") == {"4"}

    async def test_thinking_is_not_searched(self, store: Store) -> None:
        session = Session(store, "s")
        parts = [
            {"type": "thinking", "thinking": "secretly wombat"},
            {"type": "reasoning", "text": "secretly wombat"},
            {"type": "text", "text": "openly koala"},
        ]
        await session.append_message(Message("assistant", parts, id="1"))

        assert await self.found(store, session, "koala") == {"1"}
        assert await self.found(store, session, "wombat") == set()

    async def test_all_branches_are_searched(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user("root", id="r"), user("left walnut", id="1")])
        await session.append_message(user("right walnut", id="2"), parent_id="r")
        await session.append_message(user("elsewhere walnut", id="3"), parent_id=None)
        await session.checkout(None)

        assert await self.found(store, session, "walnut") == {"1", "2", "3"}

    async def test_everything_committed_is_found_at_once(self, store: Store) -> None:
        session = Session(store, "s")
        for start in range(0, 900, 300):
            await session.append_messages([user(f"needle word{n}", id=f"{n}") for n in range(start, start + 300)])
            assert len(await self.look(store, session, "needle", limit=1000)) == start + 300
        for n in range(20):
            await session.append_message(user(f"single word{900 + n}", id=f"{900 + n}"))
            assert await self.found(store, session, f"word{900 + n}") == {f"{900 + n}"}

        assert [await self.found(store, session, f"word{n}") for n in (0, 451, 899)] == [{"0"}, {"451"}, {"899"}]

    async def test_what_is_gone_is_never_found(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user("old otter", id="1"), user("lasting otter", id="2"), user("z", id="3")])

        await session.update_message(user("new badger", id="1"))
        assert await self.found(store, session, "otter") == {"2"}
        assert await self.found(store, session, "badger") == {"1"}
        await session.upsert_message(user("newer heron", id="1"))
        assert await self.found(store, session, "badger") == set()
        assert await self.found(store, session, "heron") == {"1"}
        await session.delete_messages(["2"])
        assert await self.found(store, session, "otter") == set()
        await session.append_message(user("otter again", id="2"))
        assert await self.found(store, session, "lasting") == set()
        assert await self.found(store, session, "otter") == {"2"}
        await session.clear_messages()
        assert await self.found(store, session, "otter") | await self.found(store, session, "heron") == set()

    @pytest.mark.parametrize("query", ODD_QUERIES, ids=range(len(ODD_QUERIES)))
    async def test_no_query_string_can_raise_or_inject(self, store: Store, query: str) -> None:
        session = Session(store, "s")
        stored = await session.append_messages([user("coffee and tea", id="1"), user("nothing", id="2")])
        await Session(store, "other").append_message(user(f"coffee {query}", id="foreign"))

        assert _ids(await self.look(store, session, query)) <= {"1"}

        assert await session.get_history() == stored


class _Filtering(Settling):
    """Narrowing what is found."""

    async def test_role_narrows(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user("maple", id="1"), assistant("maple", id="2"), user("maple", id="3")])

        assert _ids(await self.look(store, session, "maple", role="user")) == {"1", "3"}
        assert _ids(await self.look(store, session, "maple", role="assistant")) == {"2"}
        assert await self.look(store, session, "maple", role="nobody") == []

    async def test_since_is_inclusive_and_until_exclusive(self, store: Store) -> None:
        session = Session(store, "s")
        tick = timedelta(microseconds=1)
        for name, moment in (("before", NOON - tick), ("at", NOON), ("after", NOON + tick)):
            await session.append_message(user("maple", id=name, created_at=moment))

        assert _ids(await self.look(store, session, "maple", since=NOON)) == {"at", "after"}
        assert _ids(await self.look(store, session, "maple", until=NOON)) == {"before"}
        assert _ids(await self.look(store, session, "maple", since=NOON, until=NOON + tick)) == {"at"}
        assert await self.look(store, session, "maple", since=NOON + timedelta(days=1)) == []

    async def test_a_naive_time_is_refused(self, store: Store) -> None:
        session = Session(store, "s")

        with pytest.raises(ValueError, match=r"."):
            await self.look(store, session, "maple", since=NOON.replace(tzinfo=None))
        with pytest.raises(ValueError, match=r"."):
            await self.look(store, session, "maple", until=NOON.replace(tzinfo=None))

    async def test_limit_bounds_the_results(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user(f"maple {n}") for n in range(30)])

        assert len(await self.look(store, session, "maple")) == 20
        assert len(await self.look(store, session, "maple", limit=3)) == 3
        assert len(await self.look(store, session, "maple", limit=500)) == 30


class _Ranking(Settling):
    """What a result says, and in which order results come."""

    async def test_a_result_says_what_was_found_and_where(self, store: Store) -> None:
        session = Session(store, "s")
        filler = "words that nobody looks for, again and again. " * 40
        text = f"{filler}Then a Nightingale sang in Berkeley Square. {filler}"
        stored = await session.append_message(assistant(text, id="1"))

        (result,) = await self.look(store, session, "nightingale square")

        assert (result.session_id, result.id, result.role) == ("s", "1", "assistant")
        assert result.content == text
        assert result.created_at == stored.created_at
        assert len(result.snippet) < len(text)
        marked = [result.snippet[start:end] for start, end in result.highlights]
        assert marked == ["Nightingale", "Square"]

    async def test_highlights_count_characters(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("🦊🦊 我在北京工作, 👩\u200d👩\u200d👧 caf\u00e9 später", id="1"))

        (chinese,) = await self.look(store, session, "北京")
        (german,) = await self.look(store, session, "später")

        assert "".join(chinese.snippet[start:end] for start, end in chinese.highlights) == "北京"
        assert [german.snippet[start:end] for start, end in german.highlights] == ["später"]

    async def test_the_better_match_comes_first(self, store: Store) -> None:
        session = Session(store, "s")
        filler = "something else entirely " * 50
        await session.append_messages([user("walnut walnut walnut", id="best"), user(f"{filler} walnut", id="weak")])

        results = await self.look(store, session, "walnut")

        assert [result.id for result in results] == ["best", "weak"]
        assert results[0].score > results[1].score

    async def test_among_equals_the_newer_comes_first_then_the_smaller_id(self, store: Store) -> None:
        session = Session(store, "s")
        for name, minute in (("d", 1), ("a", 2), ("c", 3), ("b", 3), ("e", 0)):
            moment = NOON + timedelta(minutes=minute)
            await session.append_message(user("walnut", id=name, created_at=moment))

        results = await self.look(store, session, "walnut")

        assert [result.id for result in results] == ["b", "c", "a", "d", "e"]
        assert len({result.score for result in results}) == 1

    async def test_of_very_many_matches_the_newest_are_ranked(self, store: Store) -> None:
        session = Session(store, "s")
        filler = "something else entirely " * 5
        old = [user("walnut walnut", id=f"old {n}", created_at=NOON) for n in range(5)]
        new = [user(f"{filler} walnut", id=f"new {n}", created_at=NOON + timedelta(seconds=n + 1)) for n in range(1000)]
        await session.append_messages([*old, *new])

        first = await self.look(store, session, "walnut", limit=5)
        every = await self.look(store, session, "walnut", limit=1005)

        assert all(result.id.startswith("new") for result in first)
        assert len(every) == 1005
        assert {result.id for result in every[:5]} == {f"old {n}" for n in range(5)}


@pytest.mark.asyncio
class SearchContract(_Finding, _Filtering, _Ranking):
    """Search finds all that is stored and nothing else, the same way on every backend.

    Subclasses define an async `store` fixture that yields an empty, open store, and override `settle`
    when their index follows writes in the background.
    """
