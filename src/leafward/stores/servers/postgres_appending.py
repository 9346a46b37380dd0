"""Appends as single statements for PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

from leafward.stores.contracts import Usage, Weight
from leafward.stores.leases import Fence
from leafward.stores.servers.paths import Path
from leafward.stores.servers.positions import Placed, Planned, Position, digested
from leafward.stores.servers.postgres_points import held, in_force, path_seen, rows_of, values_of, values_of_path
from leafward.stores.sql.commands import Append
from leafward.stores.sql.dialect import Postgres
from leafward.stores.sql.operations import scope_ids

_PROMPT = "(SELECT tokens FROM {p}prompt p WHERE p.session_no = moved.session_no)"
_DRAFTS = "unnest($7::text[], $8::text[], $9::bigint[], $10::bigint[], $11::text[]) WITH ORDINALITY"
# Of arrays PostgreSQL expects ten rows, plans anew each time because of them, and takes longer for that than to run it.
_DRAFT = """(
            SELECT ($7::text[])[1], ($8::text[])[1], ($9::bigint[])[1], ($10::bigint[])[1], ($11::text[])[1], 1)"""
_INSERT = "INSERT INTO {p}message (place, tree_no, seq, id, role, tokens, created_at, body)"
_KEEP = "INSERT INTO {p}point (tree_no, name, place, seq, text, digest)"
_COUNT = "INSERT INTO {p}used (session_no, usage_id, model, input_tokens, output_tokens, cost, at)"
_UNUSED = "NOT EXISTS (SELECT 1 FROM {{p}}used u WHERE u.session_no = s.session_no AND u.usage_id = {})"

# Everything is decided on the session as this statement first saw it: when another writer came between, the row it
# moved is not the row that was seen, and nothing is written.
_FIND = f"""
    WITH {{held}}seen AS (
        SELECT s.session_no, s.tree_no, s.version, s.leaf{{ends}} FROM {{p}}session s {{lanes}}
        WHERE s.owner_no = (SELECT owner_no FROM {{p}}owner WHERE agent_id = $1 AND user_id = $2) AND s.session_id = $3
    ), moved AS (
        UPDATE {{p}}session s SET leaf = s.leaf + $4::bigint, version = s.version + 1,
            window_tokens = s.window_tokens + $5::bigint, updated_at = $6{{used}}
        FROM seen JOIN {{p}}lane l ON l.lane_no = seen.leaf >> 32
        WHERE s.session_no = seen.session_no AND s.version = seen.version AND s.tree_no = seen.tree_no
            AND l.floor <= seen.leaf + 1 AND (s.window_tokens IS NOT NULL OR NOT $12::boolean)
            AND NOT EXISTS (SELECT 1 FROM {{p}}message m WHERE m.place > seen.leaf AND m.place < (l.lane_no + 1) << 32)
            AND NOT EXISTS (SELECT 1 FROM {{p}}message m WHERE m.tree_no = seen.tree_no AND m.id = {{ids}})
            {{conditions}}
        RETURNING s.session_no, s.tree_no, s.version, s.leaf, s.window_tokens
    ), added AS (
        {_INSERT}
        SELECT moved.leaf - $4::bigint + d.n, moved.tree_no, moved.version, d.id, d.role, d.tokens, d.created_at, d.body
        FROM moved CROSS JOIN {{drafts}} AS d (id, role, tokens, created_at, body, n)
    ){{extras}}
    SELECT moved.session_no, moved.tree_no, moved.version, moved.leaf, moved.window_tokens,
        CASE WHEN $12 THEN {_PROMPT} END{{kept}}
    FROM moved"""

# Nothing that matters here happens to a session without moving its version; an id that is known violates its key.
_ONE = f"""
    WITH {{held}}moved AS (
        UPDATE {{p}}session s SET leaf = $4, version = s.version + 1,
            window_tokens = s.window_tokens + $5, updated_at = $6{{used}}
        WHERE s.session_no = $1 AND s.tree_no = $2 AND s.version = $3 AND s.leaf = $4::bigint - 1
            AND (s.window_tokens IS NOT NULL OR NOT $7::boolean) {{conditions}}
        RETURNING s.session_no, s.window_tokens
    ), added AS (
        {_INSERT}
        SELECT $4, $2, $3 + 1, $8, $9, $5, $10, $11 FROM moved
    ){{extras}}
    SELECT moved.window_tokens, CASE WHEN $7 THEN {_PROMPT} END FROM moved"""

# A session that another process is writing to is left alone: two that wait for each other's would never end.
_MANY = f"""
    WITH given AS (
        SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
            $7::boolean[], $8::text[], $9::text[], $10::bigint[]{{usage_given}})
            AS g (session_no, tree_no, version, leaf, messages, tokens, weigh, user_id, session_id, token
            {{usage_names}})
    ), held AS (
        SELECT l.user_id, l.session_id, l.token FROM given g
        JOIN {{p}}lease l ON l.user_id = g.user_id AND l.session_id = g.session_id AND l.token = g.token
        WHERE l.holder IS NOT NULL FOR SHARE OF l
    ), free AS (
        SELECT s.session_no FROM given g JOIN {{p}}session s ON s.session_no = g.session_no
        WHERE s.version = g.version FOR UPDATE OF s SKIP LOCKED
    ), moved AS (
        UPDATE {{p}}session s SET leaf = s.leaf + g.messages, version = s.version + 1,
            window_tokens = s.window_tokens + g.tokens, updated_at = $11{{used}}
        FROM given g JOIN free ON free.session_no = g.session_no
        WHERE s.session_no = g.session_no AND s.tree_no = g.tree_no AND s.version = g.version AND s.leaf = g.leaf
            AND (s.window_tokens IS NOT NULL OR NOT g.weigh)
            AND (g.token IS NULL OR EXISTS (
                SELECT 1 FROM held
                WHERE held.user_id = g.user_id AND held.session_id = g.session_id AND held.token = g.token))
            {{conditions}}
        RETURNING s.session_no, s.tree_no, s.version, s.window_tokens, g.weigh
    ), added AS (
        {_INSERT}
        SELECT d.place, moved.tree_no, moved.version, d.id, d.role, d.tokens, d.created_at, d.body
        FROM unnest($12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::text[], $17::bigint[], $18::bigint[],
            $19::text[]) AS d (session_no, version, place, id, role, tokens, created_at, body)
        JOIN moved ON moved.session_no = d.session_no AND moved.version = d.version
    ){{extras}}
    SELECT moved.session_no, moved.version, moved.window_tokens, CASE WHEN moved.weigh THEN {_PROMPT} END FROM moved"""

_USAGE_OF_MANY = """, counted AS (
        INSERT INTO {p}used (session_no, usage_id, model, input_tokens, output_tokens, cost, at)
        SELECT g.session_no, g.usage_id, g.model, g.input_tokens, g.output_tokens, g.cost, $11
        FROM given g JOIN moved ON moved.session_no = g.session_no AND moved.version = g.version + 1
        WHERE g.usage_id IS NOT NULL
    )"""
_STATES_OF_MANY = f""", kept AS (
        {_KEEP}
        SELECT moved.tree_no, d.name, d.place, moved.version, d.text, d.digest
        FROM unnest({{arrays}}) AS d (session_no, version, place, name, text, digest)
        JOIN moved ON moved.session_no = d.session_no AND moved.version = d.version
    )"""


class _Shape(NamedTuple):
    """What an append has besides its messages."""

    fenced: bool
    usage: bool
    named: bool
    """Whether the usage is counted under a name."""
    states: int
    is_long: bool = False
    """Whether the path is, along which its states are looked for."""
    is_single: bool = False
    has_parent: bool = False
    has_version: bool = False


class PostgresAppending:
    """Appends on a connection of asyncpg's."""

    def __init__(self, dialect: Postgres) -> None:
        self._encode = dialect.encode_text
        self._named = dialect.named
        self._find_text = lru_cache(maxsize=256)(self._make_find)
        self._one_text = lru_cache(maxsize=256)(self._make_one)
        self._many_text = lru_cache(maxsize=4)(self._make_many)

    async def find(
        self, connection: Any, command: Append, fence: Fence | None, at: int, path: Path | None
    ) -> Placed | None:
        """Append below the leaf of a session, wherever that is."""
        drafts, encode = command.drafts, self._encode
        usage, states = command.usage, digested(command.state)
        parent = command.parent if isinstance(command.parent, str) else None
        shape = _shape(fence, usage, len(states))._replace(
            is_single=len(drafts) == 1,
            has_parent=parent is not None,
            has_version=command.expected_version is not None,
            is_long=path is not None,
        )
        rows = await connection.fetch(
            self._find_text(shape),
            *map(encode, scope_ids(command.scope)),
            len(drafts),
            command.tokens,
            at,
            [encode(draft.message.id) for draft in drafts],
            [encode(draft.message.role) for draft in drafts],
            [draft.tokens for draft in drafts],
            [draft.message.at for draft in drafts],
            [encode(draft.body.decode()) for draft in drafts],
            command.weigh,
            *(() if fence is None else (fence.token,)),
            *self._usage(usage),
            *values_of(states, encode),
            *(() if parent is None else (encode(parent),)),
            *(() if command.expected_version is None else (command.expected_version,)),
            *values_of_path(path),
        )
        if not rows:
            return None
        session_no, tree_no, version, leaf, window, prompt, *kept = rows[0]
        before = Position(session_no, tree_no, version - 1, leaf - len(drafts), "")
        return Placed(
            before.moved(version, leaf, drafts[-1].message.id, states),
            Weight(window, prompt) if command.weigh else None,
            [one.state for one in states if encode(one.name) in kept[0]] if states else (),
        )

    async def at(self, connection: Any, planned: Sequence[Planned], at: int) -> list[Placed | None]:
        """Append below leaves that are known."""
        if len(planned) == 1 and len(planned[0].command.drafts) == 1:
            return [await self._at_one(connection, planned[0], at)]
        return await self._at_many(connection, planned, at)

    async def _at_one(self, connection: Any, planned: Planned, at: int) -> Placed | None:
        position, command, fence, _, changed = planned
        message, body, tokens = command.drafts[0]
        encode, usage = self._encode, command.usage
        rows = await connection.fetch(
            self._one_text(_shape(fence, usage, len(changed))),
            *(position.session_no, position.tree_no, position.version, planned.leaf, tokens, at, command.weigh),
            *(encode(message.id), encode(message.role), message.at, encode(body.decode())),
            *(() if fence is None else (*map(encode, scope_ids(command.scope)[1:]), fence.token)),
            *self._usage(usage),
            *values_of(changed, encode),
        )
        return planned.placed(_weight(command, rows[0])) if rows else None

    async def _at_many(self, connection: Any, planned: Sequence[Planned], at: int) -> list[Placed | None]:
        sessions = [self._session(one) for one in planned]
        messages = [
            (
                *(one.position.session_no, one.position.version + 1, one.position.leaf + number),
                *(self._encode(draft.message.id), self._encode(draft.message.role)),
                *(draft.tokens, draft.message.at, self._encode(draft.body.decode())),
            )
            for one in planned
            for number, draft in enumerate(one.command.drafts, 1)
        ]
        usage = any(one.command.usage is not None for one in planned)
        states = [row for one in planned for row in self._states_of_one(one)]
        rows = await connection.fetch(
            self._many_text(usage, bool(states)),
            *_columns(sessions),
            at,
            *_columns(messages),
            *(_columns([self._usage_of_one(one) for one in planned]) if usage else ()),
            *_columns(states),
        )
        moved = {(session_no, version): weight for session_no, version, *weight in rows}
        found: list[Placed | None] = []
        for one in planned:
            weight = moved.get((one.position.session_no, one.position.version + 1))
            found.append(None if weight is None else one.placed(_weight(one.command, weight)))
        return found

    def _session(self, planned: Planned) -> tuple[Any, ...]:
        position, command, fence, *_ = planned
        lease = (None,) * 3 if fence is None else (*map(self._encode, scope_ids(command.scope)[1:]), fence.token)
        return *position.row, len(command.drafts), command.tokens, command.weigh, *lease

    def _usage_of_one(self, planned: Planned) -> tuple[Any, ...]:
        usage = planned.command.usage or Usage(0, 0)
        return *usage[:3], *map(self._text, (usage.usage_id, usage.model))

    def _states_of_one(self, planned: Planned) -> Iterator[tuple[Any, ...]]:
        position = planned.position
        for one in planned.changed:
            yield position.session_no, position.version + 1, planned.leaf, *values_of([one], self._encode)

    # The values of what is not in every statement, and the statements.

    def _usage(self, usage: Usage | None) -> tuple[Any, ...]:
        if usage is None:
            return ()
        named = () if usage.usage_id is None else (self._encode(usage.usage_id), self._text(usage.model))
        return *usage[:3], *named

    def _text(self, text: str | None) -> str | None:
        return None if text is None else self._encode(text)

    def _make_find(self, shape: _Shape) -> str:
        numbers = count(13)
        lease, and_held = held("$2", "$3", f"${next(numbers)}") if shape.fenced else ("", "")
        conditions = [and_held]
        used, and_unused, counted = _usage(shape, numbers, "moved.session_no", "$6")
        conditions.append(and_unused)
        states = rows_of(shape.states, numbers)
        if shape.has_parent:
            at_leaf = f"m.place = seen.leaf AND m.id = ${next(numbers)}"
            conditions.append(f"AND EXISTS (SELECT 1 FROM {{p}}message m WHERE {at_leaf})")
        if shape.has_version:
            conditions.append(f"AND seen.version = ${next(numbers)}::bigint")
        kept = ends = lanes = ""
        if shape.states:
            ends, lanes, is_whole, places = path_seen(numbers, is_long=shape.is_long)
            conditions.append(is_whole)
            before = in_force("digest", "seen.tree_no", places, "g.name")
            kept = f""", kept AS ({_KEEP}
                SELECT moved.tree_no, g.name, moved.leaf, moved.version, g.text, g.digest
                FROM moved CROSS JOIN seen CROSS JOIN ({states}) AS g (name, text, digest)
                WHERE g.digest IS DISTINCT FROM {before} RETURNING name)"""
        return self._fill(
            _FIND,
            held=lease,
            ends=ends,
            lanes=lanes,
            ids="($7::text[])[1]" if shape.is_single else "ANY($7::text[])",
            drafts=_DRAFT if shape.is_single else _DRAFTS,
            used=used,
            conditions=" ".join(conditions),
            extras=counted + kept,
            kept=", ARRAY(SELECT name FROM kept)" if kept else "",
        )

    def _make_one(self, shape: _Shape) -> str:
        numbers = count(12)
        lease, and_held = held(*(f"${next(numbers)}" for _ in range(3))) if shape.fenced else ("", "")
        # A usage that was counted before violates its key, too.
        used, _, counted = _usage(shape, numbers, "moved.session_no", "$6")
        kept = ""
        if shape.states:
            kept = f""", kept AS ({_KEEP} SELECT $2, g.name, $4, $3 + 1, g.text, g.digest
                FROM moved CROSS JOIN ({rows_of(shape.states, numbers)}) AS g (name, text, digest))"""
        return self._fill(_ONE, held=lease, used=used, conditions=and_held, extras=counted + kept)

    def _make_many(self, usage: bool, states: bool) -> str:
        numbers = count(20)

        def arrays(*types: str) -> str:
            return ", ".join(f"${next(numbers)}::{one}[]" for one in types)

        pieces = dict.fromkeys(("usage_given", "usage_names", "used", "conditions", "extras"), "")
        if usage:
            pieces = {
                "usage_given": ", " + arrays("bigint", "bigint", "float8", "text", "text"),
                "usage_names": ", input_tokens, output_tokens, cost, usage_id, model",
                "used": _adding("g.input_tokens", "g.output_tokens", "g.cost"),
                "conditions": "AND " + _UNUSED.format("g.usage_id"),
                "extras": _USAGE_OF_MANY,
            }
        if states:
            of_states = arrays("bigint", "bigint", "bigint", "text", "text", "text")
            pieces["extras"] += _STATES_OF_MANY.replace("{arrays}", of_states)
        return self._fill(_MANY, **pieces)

    def _fill(self, statement: str, **pieces: str) -> str:
        for name, piece in pieces.items():
            statement = statement.replace(f"{{{name}}}", piece)
        return self._named(statement)


def _shape(fence: Fence | None, usage: Usage | None, states: int) -> _Shape:
    return _Shape(fence is not None, usage is not None, usage is not None and usage.usage_id is not None, states)


def _usage(shape: _Shape, numbers: Iterator[int], session_no: str, at: str) -> tuple[str, str, str]:
    """Return how a statement counts usage: what it sets, on which condition, and what it adds."""
    if not shape.usage:
        return "", "", ""
    tokens_in, tokens_out, cost = f"${next(numbers)}::bigint", f"${next(numbers)}::bigint", f"${next(numbers)}::float8"
    used = _adding(tokens_in, tokens_out, cost)
    if not shape.named:
        return used, "", ""
    usage_id, model = f"${next(numbers)}::text", f"${next(numbers)}::text"
    row = f"{session_no}, {usage_id}, {model}, {tokens_in}, {tokens_out}, {cost}, {at}"
    return used, f"AND {_UNUSED.format(usage_id)}", f", counted AS ({_COUNT} SELECT {row} FROM moved)"


def _adding(tokens_in: str, tokens_out: str, cost: str) -> str:
    return (
        f", input_tokens = s.input_tokens + {tokens_in}, output_tokens = s.output_tokens + {tokens_out}, "
        f"estimated_cost = s.estimated_cost + {cost}"
    )


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _weight(command: Append, row: Sequence[Any]) -> Weight | None:
    return Weight(*row) if command.weigh else None
