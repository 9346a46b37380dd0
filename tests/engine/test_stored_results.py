"""Calls whose results are stored where the conversation does not show them: they are never run again."""

from __future__ import annotations

from typing import Any

import pytest

from leafward import Message, ReActAgent, RuntimeContext, open_store, tool, user
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.going_on import ALICE, is_paired, results

NOT_ANSWERED = ("interrupted", "Not answered on this branch.")
PAID = ("success", "paid")


class Payments:
    """An agent whose tool pays, and which fails after that."""

    def __init__(self, store: Store) -> None:
        self.paid: list[str | None] = []
        self.model = ScriptedModel([[call("pay", id="c1")], RuntimeError("down"), "Paid.", "Again."])
        self.agent = ReActAgent("cook", self.model, store=store, tools=self.tools())
        self.session = self.agent.session("alice", "s1")

    def tools(self) -> list[Any]:
        @tool
        async def pay(ctx: RuntimeContext) -> str:
            """Pay."""
            self.paid.append(ctx.idempotency_key)
            return "paid"

        return [pay]

    async def fail_once(self) -> list[Message]:
        with pytest.raises(RuntimeError):
            await self.agent.call("Pay", ALICE)
        return await self.session.get_history()


@pytest.mark.parametrize("words", ["Pay", None, "And now?"])
async def test_a_result_that_a_summary_covers_is_given_again_and_the_tool_does_not_run(words: str | None) -> None:
    async with open_store("memory://") as store:
        payments = Payments(store)
        _, _, result = await payments.fail_once()
        await payments.session.add_compaction("Something was done.", result.id, result.id)

        await payments.agent.call(words, ALICE)

        assert len(payments.paid) == 1
        asked = payments.model.requests[-1].messages
        assert is_paired(asked)
        assert results(asked) == {"c1": PAID}
        assert is_paired(await payments.session.get_history())


@pytest.mark.parametrize("words", ["Java's question", None])
async def test_a_call_whose_result_is_on_another_branch_does_not_run_below_what_another_writer_added(
    words: str | None,
) -> None:
    async with open_store("memory://") as store:
        payments = Payments(store)
        await payments.fail_once()
        state = await payments.agent.get_agent_state("alice", "s1")
        state.context[2:] = [user("Java's question")]
        await payments.agent.save_agent_state("alice", "s1", state)

        await payments.agent.call(words, ALICE)

        assert len(payments.paid) == 1
        assert results(payments.model.requests[-1].messages) == {"c1": NOT_ANSWERED}


async def test_a_call_that_was_paused_runs_although_a_summary_covers_the_result_of_another_one() -> None:
    async with open_store("memory://") as store:
        ran: list[str] = []

        @tool
        async def pay(what: str) -> str:
            """Pay."""
            ran.append(what)
            return f"paid {what}"

        intent = Message(
            "assistant",
            [{"type": "tool_use", "id": f"c{row}", "name": "pay", "input": {"what": f"{row}"}} for row in range(2)],
        )
        model = ScriptedModel(["Hello.", "Both are paid."])
        agent = ReActAgent("cook", model, store=store, tools=[pay])
        await agent.call("hello", ALICE)
        state = await agent.get_agent_state("alice", "s1")
        done = Message.tool_result("c0", "paid 0", "pay")
        state.context += [user("Pay both", id="u1"), intent, done]
        state.shutdown_interrupted = True
        await agent.save_agent_state("alice", "s1", state)
        # A call takes it over, also one that is refused.
        with pytest.raises(ValueError, match="other parts"):
            await agent.call(user("Pay more", id="u1"), ALICE)
        await agent.session("alice", "s1").add_compaction("The first is paid.", done.id, done.id)

        await agent.call(None, ALICE)

        assert ran == ["1"]
        assert results(model.requests[-1].messages) == {"c0": ("success", "paid 0"), "c1": ("success", "paid 1")}


async def test_a_known_message_gets_its_reply_although_a_summary_covers_only_that() -> None:
    async with open_store("memory://") as store:
        payments = Payments(store)
        payments.model = ScriptedModel([[call("pay", id="c1")], "Paid."])
        agent = ReActAgent("cook", payments.model, store=store, tools=payments.tools())
        question = user("Pay", id="q1")
        await agent.call(question, ALICE)
        _, _, result, reply = await payments.session.get_history()
        await payments.session.add_compaction("It was paid.", result.id, reply.id)

        assert (await agent.call(question, ALICE)).id == reply.id

        assert len(payments.model.requests) == 2


async def test_a_call_whose_result_is_hidden_does_not_run_when_the_result_of_an_external_one_is_sent() -> None:
    async with open_store("memory://") as store:
        ran: list[str] = []

        @tool
        async def pay() -> str:
            """Pay."""
            ran.append("pay")
            return "paid"

        @tool(external=True)
        async def ask() -> str:
            """Have somebody asked."""
            raise AssertionError("an external tool is not run")

        model = ScriptedModel([[call("pay", id="c1"), call("ask", id="c2")], "Done."])
        agent = ReActAgent("cook", model, store=store, tools=[pay, ask])
        await agent.call("Pay", ALICE)
        session = agent.session("alice", "s1")
        result = (await session.get_history())[-1]
        await session.add_compaction("Something was paid.", result.id, result.id)

        await agent.call(Message.tool_result("c2", "yes", "ask"), ALICE)

        assert ran == ["pay"]
        assert results(model.requests[-1].messages) == {"c1": PAID, "c2": ("success", "yes")}


async def test_results_of_external_calls_may_come_in_parts_after_a_checkout() -> None:
    async with open_store("memory://") as store:

        @tool(external=True)
        async def ask() -> str:
            """Have somebody asked."""
            raise AssertionError("an external tool is not run")

        model = ScriptedModel([[call("ask", id="c1"), call("ask", id="c2")], "Done.", "Done again."])
        agent = ReActAgent("cook", model, store=store, tools=[ask])
        asked = await agent.call("Ask", ALICE)
        for id in ("c1", "c2"):
            await agent.call(Message.tool_result(id, "yes", "ask"), ALICE)
        await agent.session("alice", "s1").checkout(asked.id)

        waiting = await agent.call(Message.tool_result("c1", "no", "ask"), ALICE)
        assert (waiting.metadata or {})["agentscope_generate_reason"] == "TOOL_SUSPENDED"
        assert (await agent.call(Message.tool_result("c2", "no", "ask"), ALICE)).text == "Done again."

        assert results(model.requests[-1].messages) == {"c1": ("success", "no"), "c2": ("success", "no")}
