"""The context of a call: attributes, and how a tool gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest

import leafward.engine
from leafward import ConfigurationError, InvalidId, RuntimeContext, SessionKey, tool
from leafward.tools import as_tool, run
from leafward.tools.runtime_context import for_call, for_tool

if TYPE_CHECKING:
    from leafward.nowhere import Missing  # pyright: ignore[reportMissingImports]


class Database: ...


class Postgres(Database): ...


class Replica(Postgres): ...


def test_attributes_are_named_by_strings() -> None:
    ctx = RuntimeContext("alice", "s1", region="eu")

    assert (ctx.user_id, ctx.session_id, ctx.get("region"), ctx.get("zone")) == ("alice", "s1", "eu", None)
    assert ctx.put("zone", "b").put("region", None) is ctx
    assert ctx.extra == {"zone": "b"}
    ctx.extra["more"] = 1
    assert ctx.get("more") == 1


def test_attributes_are_found_by_type() -> None:
    replica, postgres = Replica(), Postgres()
    ctx = RuntimeContext.empty().put(Postgres, postgres)

    assert ctx.get(Database) is postgres
    assert ctx.get(Replica) is None
    assert ctx.put(Replica, replica).get(Database) is replica
    assert ctx.get(Postgres) is postgres
    assert ctx.put(Replica, None).get(Database) is postgres
    assert ctx.get(RuntimeContext) is ctx


def test_an_attribute_may_have_a_name_and_a_type() -> None:
    main, spare = Database(), Postgres()
    ctx = RuntimeContext(plain=main).put("main", main, Database).put("spare", spare, Postgres)

    assert (ctx.get("main", Database), ctx.get("spare", Database)) == (main, spare)
    assert (ctx.get("main", Postgres), ctx.get("main"), ctx.get(Database)) == (None, None, None)
    assert (ctx.get("plain", Database), ctx.get("plain", Postgres)) == (main, None)
    assert ctx.put("main", None, Database).get("main", Database) is None


@pytest.mark.parametrize(
    "name", ["agent_state", "extra", "get", "put", "child", "idempotency_key", "resolve_agent_state"]
)
def test_names_of_the_context_itself_are_reserved(name: str) -> None:
    attributes: dict[str, Any] = {name: 1}

    with pytest.raises(ConfigurationError, match=f"no attribute can be named '{name}'"):
        RuntimeContext(**attributes)
    with pytest.raises(ConfigurationError, match=name):
        RuntimeContext().put(name, 1)


def test_ids_and_keys_are_checked() -> None:
    with pytest.raises(InvalidId):
        RuntimeContext("")
    with pytest.raises(InvalidId):
        RuntimeContext("alice", "a\x00b")
    with pytest.raises(InvalidId):
        RuntimeContext(session_key="")
    assert RuntimeContext(session_key=SessionKey("s", "u")).session_key == SessionKey("s", "u")


def test_what_a_context_is_made_with_cannot_be_changed() -> None:
    ctx: Any = RuntimeContext("alice")
    for name in ("user_id", "session_id", "agent_state", "idempotency_key", "fencing_token"):
        with pytest.raises(AttributeError):
            setattr(ctx, name, "bob")


def test_secrets_are_not_in_its_text() -> None:
    assert repr(RuntimeContext("alice", token="secret")) == "RuntimeContext(user_id='alice', session_id=None)"


def test_copies_for_a_call_and_a_tool_share_the_attributes() -> None:
    mine = RuntimeContext("alice", region="eu", session="store")

    call = for_call(mine, user_id="alice", session_id="s1", agent_state={"a": 1})
    inside = for_tool(call, idempotency_key="k1", fencing_token=7)
    inside.put("seen", True)

    assert (inside.user_id, inside.session_id, inside.session, inside.agent_state) == ("alice", "s1", "store", {"a": 1})
    assert (inside.idempotency_key, inside.fencing_token) == ("k1", 7)
    assert (call.idempotency_key, mine.session_id, mine.agent_state) == (None, None, None)
    assert mine.get("seen") is True


async def test_the_state_is_that_of_the_call_or_the_stored_one() -> None:
    class Agent:
        async def get_agent_state(
            self, user_id: str | None = None, session_id: str | None = None, *, session: Any = None
        ) -> Any:
            return ("stored", user_id, session_id)

    ctx = RuntimeContext("alice", "s1")
    inside = for_call(ctx, user_id="alice", session_id="s1", agent_state="running")

    assert await RuntimeContext.resolve_agent_state(inside, Agent()) == "running"
    assert await RuntimeContext.resolve_agent_state(ctx, Agent()) == ("stored", "alice", "s1")
    assert await RuntimeContext.resolve_agent_state(None, Agent()) == ("stored", None, None)


def test_the_engine_exports_it() -> None:
    assert leafward.engine.RuntimeContext is RuntimeContext


# ── in a tool ────────────────────────────────────────────────────────────────


def _plain(n: int, ctx: RuntimeContext) -> str | None:
    return ctx.user_id


def _optional(n: int, context: RuntimeContext | None = None) -> str | None:
    return context.user_id if context else "nobody"


def _annotated(n: int, *, ctx: Annotated[RuntimeContext, "The context."]) -> str | None:
    return ctx.user_id


def _positional(ctx: RuntimeContext, n: int = 1, /) -> str | None:
    return ctx.user_id


def _any_others(n: int, ctx: RuntimeContext, **others: Any) -> str | None:
    assert others == {}
    return ctx.user_id


def _odd_result(n: int, ctx: RuntimeContext) -> Missing:
    return ctx.user_id


@pytest.mark.parametrize("function", [_plain, _optional, _annotated, _positional, _any_others, _odd_result])
async def test_the_context_is_injected_and_cannot_be_seen_or_forged(function: Any) -> None:
    made = as_tool(function)
    ctx = RuntimeContext("alice")
    (name,) = {"ctx", "context"} & function.__annotations__.keys()

    assert list(made.input_schema["properties"]) == ["n"]
    assert (await run(made, {"n": 1}, ctx)).text == "alice"
    assert (await run(made, {"n": 1})).text == "null"
    forged = await run(made, {"n": 1, name: {"user_id": "bob"}}, ctx)
    assert forged.text == f"Error: there is no argument '{name}'. Send 'n'."


async def test_a_context_of_a_subclass_is_injected_as_it_is() -> None:
    class Mine(RuntimeContext):
        tenant = "acme"

    @tool
    def who(ctx: RuntimeContext) -> str:
        return f"{type(ctx).__name__} {getattr(ctx, 'tenant', None)}"

    assert (await run(who, {}, for_tool(Mine(), idempotency_key="k"))).text == "Mine acme"
