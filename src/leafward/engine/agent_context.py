"""The sessions of an agent as its model uses them: context blocks, the frozen prompt, and the session's own tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from leafward.core.errors import ConfigurationError
from leafward.core.ids import Scope
from leafward.core.session_key import SessionKey
from leafward.engine.agent_compaction import AgentCompaction
from leafward.engine.agent_store import Place
from leafward.engine.turn import TurnSetup
from leafward.engine.turn_queue import Held
from leafward.sessions.session import Session, session_with
from leafward.sessions.setup import ContextConfig, Setup, as_config
from leafward.stores.contracts import Store
from leafward.tools.definition import Tool
from leafward.tools.runtime_context import RuntimeContext
from leafward.tools.toolkit import Toolkit

Blocks = Iterable[ContextConfig | Mapping[str, Any]]

_EXPAND = "expand_summary"
"""The tool that a session offers once it has a summary."""
_WRITERS = frozenset({"set_context", "delete_context"})


class AgentContext:
    """How an agent's sessions are set up.

    Raises:
        ConfigurationError: a block or an option is set up wrongly.
    """

    def __init__(
        self,
        agent_id: str,
        blocks: Blocks,
        *,
        cached_prompt: bool,
        session_tools: bool,
        compaction: AgentCompaction | None,
        is_custom: bool,
    ) -> None:
        for option, value in (("cached_prompt", cached_prompt), ("session_tools", session_tools)):
            if not isinstance(value, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigurationError(f"{option} is True or False, not {value!r}")
        self._agent_id = agent_id
        self._setup = Setup(cached_prompt=cached_prompt)
        if isinstance(blocks, (str, Mapping)) or not isinstance(blocks, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"context is not {blocks!r}: give a list of blocks, context=[{{'label': 'memory'}}]"
            )
        for block in blocks:
            self._setup.add(as_config(block))
        self._offers_tools = session_tools
        self._used = [
            option
            for option, used in (
                ("context", self._setup.blocks),
                ("cached_prompt", cached_prompt),
                ("session_tools", session_tools),
            )
            if used
        ]
        if compaction is not None:
            # By hand, `session.compact()` does what the agent does.
            self._setup.on_compaction = compaction.function()
            self._setup.has_agent_compaction = True
        if is_custom and self._used:
            raise _no_tree(self._used[0])

    def session(self, store: Store, key: SessionKey) -> Session:
        """Return a handle on a session of the agent."""
        scope = Scope.of(key.session_id, user_id=key.user_id, agent_id=self._agent_id)
        return session_with(self._setup, store, scope)

    async def setup_for(self, setup: TurnSetup, place: Place, key: SessionKey, held: Held) -> TurnSetup:
        """Return what a turn on a session is made of, with the prompt and the tools of that session.

        Raises:
            ConfigurationError: a tool of the session has the name of one of the agent's, or the store keeps no trees.
        """
        if not self._used:
            return setup
        if place.store is None or held.lease is None:
            raise _no_tree(self._used[0])
        store = place.store.fenced(held.lease)
        session = TurnSession(lambda: self.session(store, key), setup.tools if self._offers_tools else None)
        await session.renew_tools()
        requests = replace(setup.requests, parts=(session.prompt, *setup.requests.parts))
        return replace(setup, requests=requests, tools=session.tools or setup.tools, session=session)

    async def renew_prompt(self, place: Place, key: SessionKey, held: Held) -> None:
        """Have a stored prompt rendered again."""
        if self._setup.cached_prompt and place.store is not None and held.lease is not None:
            await self.session(place.store.fenced(held.lease), key).refresh_system_prompt()


class TurnSession:
    """The session of one turn. What is written through it is refused once the turn has lost its lease."""

    def __init__(self, opened: Callable[[], Session], tools: Toolkit | None) -> None:
        self._opened = opened
        self._session = opened()
        self.tools = None if tools is None else SessionToolkit(tools)
        """The tools of the agent, with those of the session."""

    async def prompt(self, _: RuntimeContext) -> str:
        """Return the frozen prompt."""
        return await self._session.freeze_system_prompt()

    async def renew_tools(self) -> None:
        """Offer the tools that blocks and history allow now."""
        if self.tools is not None:
            self.tools.take(await self._session.tools())

    def renew_prompt(self) -> None:
        """Have the prompt rendered again, as a compaction does with a stored one."""
        self._session = self._opened()


class SessionToolkit(Toolkit):
    """The tools of an agent together with those that a session offers at the moment."""

    def __init__(self, own: Toolkit) -> None:
        super().__init__(own)
        self._own: dict[str, Tool] = dict(own)
        # Of two calls in one reply, the second is to know what the first one wrote.
        self._writing = asyncio.Lock()

    def take(self, tools: Mapping[str, Tool]) -> None:
        """Offer these tools of the session from now on, in place of the earlier ones.

        Raises:
            ConfigurationError: the agent has a tool of such a name.
        """
        for name in (*tools, _EXPAND):
            if name in self._own:
                raise ConfigurationError(
                    f"two tools are named {name!r}, and one is the session's own: rename yours, or leave out "
                    "session_tools=True"
                )
        self._tools = self._own | {name: self._in_turn(tool) for name, tool in tools.items()}

    def _in_turn(self, tool: Tool) -> Tool:
        """Have calls that write run one after the other, in the order of the reply."""
        prepare = tool.prepare
        if tool.name not in _WRITERS or prepare is None:
            return tool

        def prepare_in_turn(arguments: object, ctx: RuntimeContext) -> Callable[[], Any]:
            run = prepare(arguments, ctx)

            async def run_in_turn() -> Any:
                async with self._writing:
                    return await run()

            return run_in_turn

        return replace(tool, prepare=prepare_in_turn)


def _no_tree(option: str) -> ConfigurationError:
    return ConfigurationError(
        f"{option}= needs a tree of messages, which a custom store of states does not keep: "
        "give the agent a store of leafward's"
    )
