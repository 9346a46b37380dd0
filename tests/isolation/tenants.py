"""A tenant of a store: its ids, its canaries, its handles, and what it was told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from leafward import Session, SessionKey, SessionManager, StoredSearchProvider
from leafward.stores import Store
from tests.isolation.ids import Triple
from tests.isolation.witness import Watched, Witness

CANARY = re.compile(r"zq(own|shared)([0-9]{3})x")
# What these say is said of all sessions of a user with an agent.
OWNER_WIDE = {
    *("SessionManager.list", "SessionManager.search", "tool search_past", "tool session_list", "tool session_search"),
}


class Skills:
    """A skill of the tenant's own."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get(self) -> str:
        return f"- tea: {self._text}"

    def load(self, key: str) -> str | None:
        return self._text if key == "tea" else None


class Tenant:
    """Everything it writes carries one of its canaries: `own`, or `shared` where its other sessions see it too."""

    def __init__(self, store: Store, ids: Triple, number: int) -> None:
        self.user_id, self.agent_id, self.session_id = ids
        self.number = number
        self.own = f"zqown{number:03d}x"
        self.shared = f"zqshared{number:03d}x"
        self.unique_id = f"only-{number}"
        self.compaction_id = ""
        self.witness = Witness()
        self.store = store
        self.leases = Watched(store.leases, "Leases", self.witness)
        self.states = Watched(store.states, "StateStore", self.witness)
        self.manager = self._manage()
        self.session = self.handle(self.session_id)

    @property
    def owner(self) -> tuple[str | None, str]:
        return self.user_id, self.agent_id

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.session_id, self.user_id)

    @property
    def slot(self) -> tuple[str | None, str]:
        return self.user_id, self.session_id

    def _manage(self) -> Watched:
        manager = self.watch(SessionManager(self.store, user_id=self.user_id, agent_id=self.agent_id))
        self._set_up(manager)
        manager.with_searchable_history("past")
        return manager

    def _set_up(self, builder: Watched) -> None:
        builder.with_context("memory", description=f"{self.own} memory")
        builder.with_context("house", shared=True)
        builder.with_context("facts", provider=StoredSearchProvider())
        builder.with_context("skills", provider=Skills(f"{self.own} steeps tea"))
        builder.with_cached_prompt()
        builder.on_compaction(self._compact)
        builder.compact_after(1_000_000)
        builder.on_compaction_error(lambda error: self.witness.note("on_compaction_error", error))

    def _compact(self, messages: Sequence[Any]) -> dict[str, str]:
        self.witness.note("compaction function", list(messages))
        ends = {"from_message_id": messages[0].id, "to_message_id": messages[1].id}
        return {"summary": f"{self.own} summary", **ends}

    def handle(self, session_id: str) -> Watched:
        return self.watch(self.manager.get_session(session_id))

    def built(self) -> Watched:
        """Return a handle made step by step, without the manager."""
        create = Watched(Session, "Session", self.witness).create
        session = self.watch(create(self.store, user_id=self.user_id, agent_id=self.agent_id))
        session.for_session(self.session_id)
        self._set_up(session)
        return session

    def watch(self, target: object) -> Watched:
        return Watched(target, type(target).__name__, self.witness)

    async def call(self, tools: Any, name: str, **arguments: object) -> str:
        """Call a tool as a model does."""
        answer = await tools.call(name, arguments)
        past = "_past" if arguments.get("label") == "past" else ""
        self.witness.note(f"tool {name.removesuffix('_context') + past if past else name}", answer)
        return answer


def leaks(tenants: Sequence[Tenant]) -> list[str]:
    """Return what a tenant was told that another one wrote where it cannot see it."""
    by_number = {f"{one.number:03d}": one for one in tenants}
    found: set[str] = set()
    for tenant in tenants:
        for call, text in tenant.witness.told:
            for kind, number in set(CANARY.findall(text)):
                writer = by_number[number]
                related = writer.owner == tenant.owner and (kind == "shared" or call in OWNER_WIDE)
                if writer is not tenant and not related:
                    found.add(f"{call} told {_name(tenant)} what {_name(writer)} wrote")
    return sorted(found)


def _name(tenant: Tenant) -> str:
    return f"({tenant.user_id!r:.40}, {tenant.agent_id!r:.40}, {tenant.session_id!r:.40})"
