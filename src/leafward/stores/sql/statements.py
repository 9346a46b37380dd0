"""Every statement on the tables, named; `{p}` stands for the table prefix."""

from __future__ import annotations

from functools import cache

# Sessions and their owners.

GET_SESSION = """
    SELECT s.session_no, s.owner_no, s.tree_no, s.leaf, s.version, s.window_tokens, s.overlays, s.reclaimed
    FROM {p}session s
    WHERE s.owner_no = (SELECT owner_no FROM {p}owner WHERE agent_id = ? AND user_id = ?) AND s.session_id = ?"""

GET_REVISION = """
    SELECT s.session_no, s.version FROM {p}session s
    WHERE s.owner_no = (SELECT owner_no FROM {p}owner WHERE agent_id = ? AND user_id = ?) AND s.session_id = ?"""

GET_OWNER = "SELECT owner_no FROM {p}owner WHERE agent_id = ? AND user_id = ?"

# Called otherwise only to be another text: a dialect knows by the text which statements hold the row they read.
HOLD_OWNER = "SELECT owner_no AS held FROM {p}owner WHERE agent_id = ? AND user_id = ?"

ADD_OWNER = "INSERT INTO {p}owner (agent_id, user_id) VALUES (?, ?) RETURNING owner_no"

ADD_TREE = "INSERT INTO {p}tree (owner_no, discarded) VALUES (?, 0) RETURNING tree_no"

ADD_SESSION = """
    INSERT INTO {p}session (owner_no, session_id, tree_no, leaf, version, window_tokens, created_at, updated_at)
    VALUES (?, ?, ?, NULL, 0, 0, ?, ?) RETURNING session_no"""

FIND_OTHER_AGENT = """
    SELECT 1 FROM {p}owner o JOIN {p}session s ON s.owner_no = o.owner_no
    WHERE o.user_id = ? AND s.session_id = ? AND o.agent_id <> ? LIMIT 1"""

MOVE_SESSION = "UPDATE {p}session SET leaf = ?, version = ?, window_tokens = ?, updated_at = ? WHERE session_no = ?"

MOVE_AND_USE = """
    UPDATE {p}session SET leaf = ?, version = ?, window_tokens = ?, input_tokens = input_tokens + ?,
        output_tokens = output_tokens + ?, estimated_cost = estimated_cost + ?, updated_at = ? WHERE session_no = ?"""

COUNT_OVERLAYS = "UPDATE {p}session SET overlays = ? WHERE session_no = ?"

COUNT_RECLAIMED = "UPDATE {p}session SET reclaimed = ? WHERE session_no = ?"

REPLACE_TREE = "UPDATE {p}session SET tree_no = ?, overlays = 0, reclaimed = 0 WHERE session_no = ?"

DISCARD_TREE = "UPDATE {p}tree SET discarded = 1 WHERE tree_no = ?"

# What is left of a tree when its messages are gone.
DROP_TREE = (
    "DELETE FROM {p}label WHERE tree_no = ?",
    "DELETE FROM {p}overlay WHERE tree_no = ?",
    "DELETE FROM {p}reclaimed WHERE tree_no = ?",
    "DELETE FROM {p}point WHERE tree_no = ?",
    "DELETE FROM {p}lane WHERE tree_no = ?",
    "DELETE FROM {p}tree WHERE tree_no = ?",
)

# Lanes.

ADD_LANE = "INSERT INTO {p}lane (tree_no, origin, floor, removed) VALUES (?, ?, 0, 0) RETURNING lane_no"

GET_ORIGIN = "SELECT origin FROM {p}lane WHERE lane_no = ?"

GET_LANE_TREE = "SELECT tree_no FROM {p}lane WHERE lane_no = ?"

GET_LANE_END = """
    SELECT floor, (SELECT max(place) FROM {p}message WHERE place BETWEEN ? AND ?)
    FROM {p}lane WHERE lane_no = ?"""

# A deleted place is never used again, or a lane that branched from it would gain a foreign ancestor.
RAISE_FLOOR = """
    UPDATE {p}lane SET floor = CASE WHEN floor < ? THEN ? ELSE floor END, removed = removed + 1 WHERE lane_no = ?"""

GET_REMOVED = "SELECT removed FROM {p}lane WHERE lane_no = ?"

LIST_LANES = "SELECT lane_no, origin FROM {p}lane WHERE tree_no = ? ORDER BY lane_no"

LIST_ROOT_LANES = "SELECT lane_no FROM {p}lane WHERE tree_no = ? AND origin IS NULL ORDER BY lane_no"

LIST_FORKS = "SELECT lane_no FROM {p}lane WHERE tree_no = ? AND origin BETWEEN ? AND ? ORDER BY lane_no"

# Messages.

ADD_MESSAGE = """
    INSERT INTO {p}message (place, tree_no, seq, id, role, tokens, created_at, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""

CHANGE_MESSAGE = "UPDATE {p}message SET role = ?, tokens = ?, body = ? WHERE place = ?"

HAS_MESSAGES = "SELECT 1 FROM {p}message WHERE tree_no = ? LIMIT 1"

DROP_MESSAGE = "DELETE FROM {p}message WHERE place = ?"

FIND_PLACE = "SELECT place FROM {p}message WHERE tree_no = ? AND id = ?"

FIND_MESSAGE = """
    SELECT place, id, role, created_at, CAST(body AS BLOB) FROM {p}message WHERE tree_no = ? AND id = ?"""

AT_ONCE = 40
"""How many messages are looked for in one statement."""

FIND_MESSAGES = f"""
    SELECT place, id, role, created_at, CAST(body AS BLOB) FROM {{p}}message
    WHERE tree_no = ? AND id IN ({", ".join("?" * AT_ONCE)})"""

FIND_PLACES = f"SELECT id, place FROM {{p}}message WHERE tree_no = ? AND id IN ({', '.join('?' * AT_ONCE)})"

FIND_IN_SESSION = """
    SELECT m.id, m.role, m.created_at, CAST(m.body AS BLOB)
    FROM {p}session s JOIN {p}message m ON m.tree_no = s.tree_no
    WHERE s.owner_no = (SELECT owner_no FROM {p}owner WHERE agent_id = ? AND user_id = ?) AND s.session_id = ?
        AND m.id = ?"""

GET_LEAF = """
    SELECT m.id, m.role, m.created_at, CAST(m.body AS BLOB) FROM {p}session s JOIN {p}message m ON m.place = s.leaf
    WHERE s.owner_no = (SELECT owner_no FROM {p}owner WHERE agent_id = ? AND user_id = ?) AND s.session_id = ?"""

GET_MESSAGE = "SELECT id, role, created_at, CAST(body AS BLOB) FROM {p}message WHERE place = ?"

GET_BRANCH = "SELECT place, seq, id, role, created_at, CAST(body AS BLOB) FROM {p}message WHERE place = ?"

LIST_BRANCHES = """
    SELECT place, seq, id, role, created_at, CAST(body AS BLOB) FROM {p}message WHERE tree_no = ?"""

LAST_PLACE = "SELECT max(place) FROM {p}message WHERE place BETWEEN ? AND ?"

FIRST_PLACE = "SELECT min(place) FROM {p}message WHERE place BETWEEN ? AND ?"

SUM_TOKENS = "SELECT coalesce(sum(tokens), 0) FROM {p}message WHERE place BETWEEN ? AND ?"

SAVE_TOKENS = "UPDATE {p}message SET tokens = CASE WHEN tokens > ? THEN tokens - ? ELSE 0 END WHERE place = ?"

COUNT_PLACES = "SELECT count(*) FROM {p}message WHERE place BETWEEN ? AND ?"

READ_RANGE = """
    SELECT id, role, created_at, CAST(body AS BLOB) FROM {p}message WHERE place BETWEEN ? AND ? ORDER BY place"""

# The path of a session whose leaf is in a lane that branched from nothing, where nothing stands in for any message.
# Its ends are asked for as single values: by a join, PostgreSQL would read everybody's messages beyond the first end.
_TRUNK = """(
    SELECT {} FROM {{p}}session s JOIN {{p}}lane l ON l.lane_no = s.leaf >> 32
    WHERE s.owner_no = (SELECT owner_no FROM {{p}}owner WHERE agent_id = ? AND user_id = ?) AND s.session_id = ?
        AND s.overlays = 0 AND s.reclaimed = 0 AND l.origin IS NULL
)"""
_ON_TRUNK = f"FROM {{p}}message WHERE place BETWEEN {_TRUNK.format('l.lane_no << 32')} AND {_TRUNK.format('s.leaf')}"

READ_TRUNK = f"SELECT id, role, created_at, CAST(body AS BLOB) {_ON_TRUNK} ORDER BY place"
"""Asks for the session twice."""

PAGE_TRUNK_UP = f"""
    SELECT place, id, role, created_at, CAST(body AS BLOB), tokens, {_TRUNK.format("s.version")} {_ON_TRUNK}
    ORDER BY place DESC LIMIT ?"""
"""Asks for the session three times; the first place is the leaf."""

PAGE_UP = """
    SELECT place, id, role, created_at, CAST(body AS BLOB), tokens
    FROM {p}message WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT ?"""

PAGE_DOWN = """
    SELECT place, id, role, created_at, CAST(body AS BLOB), tokens
    FROM {p}message WHERE place BETWEEN ? AND ? ORDER BY place LIMIT ?"""

GET_ID = "SELECT id FROM {p}message WHERE place = ?"

PAGE_FROM = """
    SELECT id, role, created_at, CAST(body AS BLOB)
    FROM {p}message WHERE place BETWEEN ? AND ? ORDER BY place LIMIT ? OFFSET ?"""

NEWEST_APPENDS = """
    SELECT place, seq, id FROM {p}message WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT ?"""

# Labels and the log.

SET_LABEL = """
    INSERT INTO {p}label (place, tree_no, name) VALUES (?, ?, ?)
    ON CONFLICT (place) DO UPDATE SET name = excluded.name"""

GET_LABEL = "SELECT name FROM {p}label WHERE place = ?"

DROP_LABEL = "DELETE FROM {p}label WHERE place = ?"

LIST_LABELS = """
    SELECT m.id, l.name FROM {p}label l JOIN {p}message m ON m.place = l.place WHERE l.tree_no = ? ORDER BY m.place"""

ADD_CHANGE = "INSERT INTO {p}change (session_no, seq, kind, ids) VALUES (?, ?, ?, ?)"

LIST_CHANGES = "SELECT seq, kind, ids FROM {p}change WHERE session_no = ? AND seq > ? ORDER BY seq"

# States attached to places. Place 0 is the root, above every lane.

OFF_PATH = "elsewhere"
"""In place of a state, which is an object: the nearest one before is not above the leaf."""
# Empty where the state was removed. Only another lane that starts at the root has places between the root and these.
_STATE_ON_TRUNK = f"""(
        SELECT CASE WHEN p.place >= s.leaf >> 32 << 32 OR p.place = 0 THEN coalesce(p.text, '') ELSE '{OFF_PATH}' END
        FROM {{p}}point p WHERE p.tree_no = s.tree_no AND p.name = ? AND p.place <= coalesce(s.leaf, 0)
        ORDER BY p.place DESC LIMIT 1)"""
_PLACE_ON_TRUNK = "(SELECT m.place FROM {p}message m WHERE m.tree_no = s.tree_no AND m.id = ?)"


@cache
def head_on_trunk(names: int, ids: int) -> str:
    """Return a statement that reads the head of a session whose leaf is in a lane that starts at the root, or nowhere.

    It asks for each name, for each id, then for the session.
    """
    columns = ", ".join(["", *[_STATE_ON_TRUNK] * names, *[_PLACE_ON_TRUNK] * ids])
    return f"""
    SELECT s.version, s.leaf, (SELECT m.id FROM {{p}}message m WHERE m.place = s.leaf){columns}
    FROM {{p}}session s LEFT JOIN {{p}}lane l ON l.lane_no = s.leaf >> 32
    WHERE s.owner_no = (SELECT owner_no FROM {{p}}owner WHERE agent_id = ? AND user_id = ?) AND s.session_id = ?
        AND l.origin IS NULL"""


_STATE_IN_LANE = """(
        SELECT coalesce(p.text, '') FROM {p}point p WHERE p.tree_no = ? AND p.name = ? AND p.place BETWEEN ? AND ?
        ORDER BY p.place DESC LIMIT 1)"""


@cache
def states_in_lane(names: int) -> str:
    """Return a statement for the last states of so many names in a range of places, empty where removed."""
    return f"SELECT {', '.join([_STATE_IN_LANE] * names)}"


_BELOW = """
    SELECT l.floor, (SELECT max(m.place) FROM {p}message m WHERE m.place BETWEEN ? AND ?), (
        SELECT m.place FROM {p}message m WHERE m.tree_no = ? AND m.id = ?)"""
_NAMED = ", (SELECT m.place FROM {p}message m WHERE m.tree_no = ? AND m.id = ?)"
_USED = ", (SELECT 1 FROM {p}used u WHERE u.session_no = ? AND u.usage_id = ?)"


@cache
def below_leaf(parent: bool, usage: bool, names: int) -> str:
    """Return a statement for what an append below the leaf looks at: its lane's end, ids, usage and states."""
    asked = [_BELOW, _NAMED if parent else "", _USED if usage else "", *[f", {_STATE_IN_LANE}"] * names]
    return "".join(asked) + " FROM {p}lane l WHERE l.lane_no = ?"


SET_STATE = """
    INSERT INTO {p}point (tree_no, name, place, seq, text, digest) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (tree_no, name, place) DO UPDATE SET
        seq = excluded.seq, text = excluded.text, digest = excluded.digest"""

# Asked for once for each name that a tree has: names are few, states may be many.
NEXT_STATE_NAME = "SELECT min(name) FROM {p}point WHERE tree_no = ? AND name > ?"

HAS_STATE = "SELECT 1 FROM {p}point WHERE tree_no = ? AND name = ? AND place BETWEEN ? AND ? LIMIT 1"

LIST_STATES = "SELECT place, text FROM {p}point WHERE tree_no = ? AND name = ? ORDER BY place"

LIST_STATE_PLACES = "SELECT place FROM {p}point WHERE tree_no = ? AND name = ? AND place BETWEEN ? AND ?"

NEXT_STATE_PLACE = "SELECT min(place) FROM {p}point WHERE tree_no = ? AND name = ? AND place > ? AND place <= ?"

DROP_STATE = "DELETE FROM {p}point WHERE tree_no = ? AND name = ? AND place = ?"

COPY_STATES = """
    INSERT INTO {p}point (tree_no, name, place, seq, text, digest)
    SELECT CAST(? AS INTEGER), name, place + ?, CAST(? AS INTEGER), text, digest
    FROM {p}point WHERE tree_no = ? AND name = ? AND place BETWEEN ? AND ?"""

# Overlays.

ADD_OVERLAY = """
    INSERT INTO {p}overlay (tree_no, id, seq, low, high, tokens, created_at, summary) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""

LIST_SPANS = "SELECT overlay_no, seq, low, high, tokens FROM {p}overlay WHERE tree_no = ? ORDER BY overlay_no"

# Those that end elsewhere than in one range of places.
OTHER_SPANS = """
    SELECT overlay_no, seq, low, high, tokens FROM {p}overlay WHERE tree_no = ? AND NOT high BETWEEN ? AND ?"""

# The order in which an overlay comes before all that it contains; the index holds all that is asked for.
NEXT_SPANS = """
    SELECT overlay_no, seq, low, high, tokens FROM {p}overlay
    WHERE tree_no = ? AND high > ? AND seq <= ?
        AND low >= ? AND (low > ? OR high < ? OR (high = ? AND overlay_no < ?))
    ORDER BY low, high DESC, overlay_no DESC LIMIT ?"""

FIND_OVERLAY = "SELECT low, high FROM {p}overlay WHERE tree_no = ? AND id = ?"

GET_SUMMARY = "SELECT id, created_at, summary FROM {p}overlay WHERE overlay_no = ?"

MOVE_OVERLAY = "UPDATE {p}overlay SET low = ?, high = ? WHERE overlay_no = ?"

DROP_OVERLAY = "DELETE FROM {p}overlay WHERE overlay_no = ?"

LIST_OVERLAYS = """
    SELECT o.id, o.summary, f.id, t.id, o.created_at
    FROM {p}overlay o JOIN {p}message f ON f.place = o.low JOIN {p}message t ON t.place = o.high
    WHERE o.tree_no = ? ORDER BY o.overlay_no"""

# Skills: which are loaded, and which of their texts a history no longer shows.

LIST_SKILLS = "SELECT label, skill_key FROM {p}skill WHERE session_no = ? ORDER BY label, skill_key"

ADD_SKILL = "INSERT INTO {p}skill (session_no, label, skill_key) VALUES (?, ?, ?)"

HAS_SKILL = "SELECT 1 FROM {p}skill WHERE session_no = ? AND label = ? AND skill_key = ?"

DROP_SKILL = "DELETE FROM {p}skill WHERE session_no = ? AND label = ? AND skill_key = ?"

DROP_SKILLS = "DELETE FROM {p}skill WHERE session_no = ?"

GET_NOTICE = "SELECT notice FROM {p}reclaimed WHERE place = ? AND call_id = ?"

CHANGE_NOTICE = "UPDATE {p}reclaimed SET notice = ? WHERE place = ? AND call_id = ?"

ADD_RECLAIMED = "INSERT INTO {p}reclaimed (place, call_id, tree_no, notice) VALUES (?, ?, ?, ?)"

LIST_RECLAIMED = "SELECT place, call_id, notice FROM {p}reclaimed WHERE tree_no = ?"

NOTICES_BETWEEN = "SELECT place, call_id, notice FROM {p}reclaimed WHERE place BETWEEN ? AND ?"

NOTICES_AT = "SELECT call_id, notice FROM {p}reclaimed WHERE place = ?"

DROP_RECLAIMED = "DELETE FROM {p}reclaimed WHERE place = ?"

# The frozen prompt.

GET_PROMPT = "SELECT prompt, tokens, fingerprint FROM {p}prompt WHERE session_no = ?"

GET_PROMPT_TOKENS = "SELECT tokens FROM {p}prompt WHERE session_no = ?"

SET_PROMPT = """
    INSERT INTO {p}prompt (session_no, prompt, tokens, fingerprint) VALUES (?, ?, ?, ?)
    ON CONFLICT (session_no) DO UPDATE SET
        prompt = excluded.prompt, tokens = excluded.tokens, fingerprint = excluded.fingerprint"""

DROP_PROMPT = "DELETE FROM {p}prompt WHERE session_no = ?"

# Stored context. A shelf of session number 0 is shared by all sessions of its owner; one below 0 is discarded.

GET_SHELF = "SELECT shelf_no FROM {p}shelf WHERE owner_no = ? AND session_no = ? AND label = ?"

ADD_SHELF = "INSERT INTO {p}shelf (owner_no, session_no, label) VALUES (?, ?, ?) RETURNING shelf_no"

LIST_SHELVES = "SELECT shelf_no, label FROM {p}shelf WHERE owner_no = ? AND session_no = ? ORDER BY label"

DISCARD_SHELVES = "UPDATE {p}shelf SET session_no = -session_no WHERE owner_no = ? AND session_no = ?"

DROP_SHELF = "DELETE FROM {p}shelf WHERE shelf_no = ?"

GET_ENTRY = "SELECT entry_no, content, description, analyzer FROM {p}entry WHERE shelf_no = ? AND entry_key = ?"

ADD_ENTRY = """
    INSERT INTO {p}entry (shelf_no, entry_key, updated_at, analyzer, description, content)
    VALUES (?, ?, ?, ?, ?, ?) RETURNING entry_no"""

CHANGE_ENTRY = """
    UPDATE {p}entry SET updated_at = ?, analyzer = ?, description = ?, content = ? WHERE entry_no = ?"""

DROP_ENTRY = "DELETE FROM {p}entry WHERE entry_no = ?"

DROP_ENTRY_OF = "DELETE FROM {p}entry WHERE shelf_no = ? AND entry_key = ?"

COUNT_ENTRIES = "SELECT count(*) FROM {p}entry WHERE shelf_no = ?"

LIST_ENTRIES = """
    SELECT entry_key, content, description, analyzer FROM {p}entry WHERE shelf_no = ? ORDER BY entry_key"""

ADD_WORD = "INSERT INTO {p}entry_word (shelf_no, word, entry_no) VALUES (?, ?, ?)"

DROP_WORD = "DELETE FROM {p}entry_word WHERE shelf_no = ? AND word = ? AND entry_no = ?"

# Looks at every word of the shelf.
DROP_WORDS = "DELETE FROM {p}entry_word WHERE shelf_no = ? AND entry_no = ?"

HAS_MORE_WORDS = "SELECT 1 FROM {p}entry_word WHERE shelf_no = ? LIMIT 1 OFFSET ?"

WITH_WORD = "SELECT entry_no FROM {p}entry_word WHERE shelf_no = ? AND word = ?"

# Two ranges of the index; with <> or OR all of the shelf would be looked at.
CUT_OTHERWISE = """
    SELECT entry_no FROM {p}entry WHERE shelf_no = ? AND analyzer < ?
    UNION ALL SELECT entry_no FROM {p}entry WHERE shelf_no = ? AND analyzer > ?"""

READ_ENTRY = "SELECT entry_key, updated_at, content FROM {p}entry WHERE entry_no = ?"

# The list of sessions.

_INFO = """
    SELECT s.session_id, s.name, s.parent_session_id, s.model, s.source, s.input_tokens, s.output_tokens,
        s.estimated_cost, s.end_reason, s.created_at, s.updated_at, s.session_no
    FROM {p}session s"""

GET_INFO = _INFO + " WHERE s.session_no = ?"

LIST_INFO = _INFO + " WHERE s.owner_no = ? ORDER BY s.updated_at DESC, s.session_no DESC LIMIT ?"

LIST_INFO_AFTER = (
    _INFO
    + """
    WHERE s.owner_no = ? AND (s.updated_at < ? OR (s.updated_at = ? AND s.session_no < ?))
    ORDER BY s.updated_at DESC, s.session_no DESC LIMIT ?"""
)

COUNT_SESSIONS = "SELECT count(*) FROM {p}session WHERE owner_no = ?"

DESCRIBE_SESSION = "UPDATE {p}session SET name = ?, parent_session_id = ?, model = ?, source = ? WHERE session_no = ?"

RENAME_SESSION = "UPDATE {p}session SET name = ?, updated_at = ? WHERE session_no = ?"

END_SESSION = "UPDATE {p}session SET end_reason = ?, updated_at = ? WHERE session_no = ?"

ADD_USAGE = """
    UPDATE {p}session SET input_tokens = input_tokens + ?, output_tokens = output_tokens + ?,
        estimated_cost = estimated_cost + ?, updated_at = ? WHERE session_no = ?"""

HAS_USED = "SELECT 1 FROM {p}used WHERE session_no = ? AND usage_id = ?"

ADD_USED = """
    INSERT INTO {p}used (session_no, usage_id, model, input_tokens, output_tokens, cost, at)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""

LIST_USED = """
    SELECT usage_id, model, input_tokens, output_tokens, cost, at FROM {p}used WHERE session_no = ?
    ORDER BY at, usage_id"""

DROP_USED = "DELETE FROM {p}used WHERE session_no = ?"

RESTORE_INFO = """
    UPDATE {p}session SET input_tokens = ?, output_tokens = ?, estimated_cost = ?, end_reason = ?, created_at = ?
    WHERE session_no = ?"""

DROP_SESSION = "DELETE FROM {p}session WHERE session_no = ?"

DROP_CHANGES = "DELETE FROM {p}change WHERE session_no = ?"

# Copies of a session. Places move by one distance for each stretch of the path.

COPY_MESSAGES = """
    INSERT INTO {p}message (place, tree_no, seq, id, role, tokens, created_at, body)
    SELECT place + ?, CAST(? AS INTEGER), CAST(? AS INTEGER), id, role, tokens, created_at, body
    FROM {p}message WHERE place BETWEEN ? AND ? ORDER BY place"""

COPY_LABELS = (
    "INSERT INTO {p}label (place, tree_no, name) "
    "SELECT place + ?, CAST(? AS INTEGER), name FROM {p}label WHERE place BETWEEN ? AND ?"
)

COPY_RECLAIMED = """
    INSERT INTO {p}reclaimed (place, call_id, tree_no, notice)
    SELECT place + ?, call_id, CAST(? AS INTEGER), notice FROM {p}reclaimed WHERE place BETWEEN ? AND ?"""

COPY_OVERLAY = """
    INSERT INTO {p}overlay (tree_no, id, seq, low, high, tokens, created_at, summary)
    SELECT CAST(? AS INTEGER), id, CAST(? AS INTEGER), CAST(? AS INTEGER), CAST(? AS INTEGER),
        tokens, created_at, summary
    FROM {p}overlay WHERE overlay_no = ?"""

COPY_SKILLS = """
    INSERT INTO {p}skill (session_no, label, skill_key)
    SELECT CAST(? AS INTEGER), label, skill_key FROM {p}skill WHERE session_no = ?"""

COPY_ENTRIES = """
    INSERT INTO {p}entry (shelf_no, entry_key, updated_at, analyzer, description, content)
    SELECT CAST(? AS INTEGER), entry_key, updated_at, analyzer, description, content FROM {p}entry WHERE shelf_no = ?"""

COPY_ENTRIES_UNCUT = """
    INSERT INTO {p}entry (shelf_no, entry_key, updated_at, analyzer, description, content)
    SELECT CAST(? AS INTEGER), entry_key, updated_at,
        CASE WHEN analyzer IS NULL THEN NULL ELSE '' END, description, content
    FROM {p}entry WHERE shelf_no = ?"""

COPY_WORDS = """
    INSERT INTO {p}entry_word (shelf_no, word, entry_no)
    SELECT new.shelf_no, w.word, new.entry_no
    FROM {p}entry_word w JOIN {p}entry old ON old.entry_no = w.entry_no
        JOIN {p}entry new ON new.entry_key = old.entry_key AND new.shelf_no = ?
    WHERE w.shelf_no = ?"""

MARK_REMOVED = "UPDATE {p}lane SET removed = ? WHERE lane_no = ?"

LIST_ALL = """
    SELECT place, seq, id, role, created_at, CAST(body AS BLOB), tokens FROM {p}message WHERE tree_no = ?"""

ENOUGH_ALONE = frozenset({GET_REVISION, FIND_IN_SESSION, GET_LEAF, READ_TRUNK, PAGE_TRUNK_UP})
"""Statements that tell all that is asked for, or nearly always do."""
