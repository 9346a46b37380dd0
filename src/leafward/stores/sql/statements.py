"""Every statement on the tables, named; `{p}` stands for the table prefix."""

from __future__ import annotations

# Sessions and their owners.

GET_SESSION = """
    SELECT s.session_no, s.owner_no, s.tree_no, s.leaf, s.version
    FROM {p}owner o JOIN {p}session s ON s.owner_no = o.owner_no
    WHERE o.agent_id = ? AND o.user_id = ? AND s.session_id = ?"""

GET_VERSION = """
    SELECT s.version FROM {p}owner o JOIN {p}session s ON s.owner_no = o.owner_no
    WHERE o.agent_id = ? AND o.user_id = ? AND s.session_id = ?"""

GET_OWNER = "SELECT owner_no FROM {p}owner WHERE agent_id = ? AND user_id = ?"

ADD_OWNER = "INSERT INTO {p}owner (agent_id, user_id) VALUES (?, ?) RETURNING owner_no"

ADD_TREE = "INSERT INTO {p}tree (owner_no, discarded) VALUES (?, 0) RETURNING tree_no"

ADD_SESSION = """
    INSERT INTO {p}session (owner_no, session_id, tree_no, leaf, version, created_at, updated_at)
    VALUES (?, ?, ?, NULL, 0, ?, ?) RETURNING session_no"""

MOVE_SESSION = "UPDATE {p}session SET leaf = ?, version = ?, updated_at = ? WHERE session_no = ?"

REPLACE_TREE = "UPDATE {p}session SET tree_no = ? WHERE session_no = ?"

DISCARD_TREE = "UPDATE {p}tree SET discarded = 1 WHERE tree_no = ?"

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

GET_MESSAGE = "SELECT id, role, created_at, CAST(body AS BLOB) FROM {p}message WHERE place = ?"

GET_BRANCH = "SELECT place, seq, id, role, created_at, CAST(body AS BLOB) FROM {p}message WHERE place = ?"

LIST_BRANCHES = """
    SELECT place, seq, id, role, created_at, CAST(body AS BLOB) FROM {p}message WHERE tree_no = ?"""

LAST_PLACE = "SELECT max(place) FROM {p}message WHERE place BETWEEN ? AND ?"

FIRST_PLACE = "SELECT min(place) FROM {p}message WHERE place BETWEEN ? AND ?"

COUNT_PLACES = "SELECT count(*) FROM {p}message WHERE place BETWEEN ? AND ?"

READ_RANGE = """
    SELECT id, role, created_at, CAST(body AS BLOB) FROM {p}message WHERE place BETWEEN ? AND ? ORDER BY place"""

PAGE_UP = """
    SELECT place, id, role, created_at, CAST(body AS BLOB), tokens
    FROM {p}message WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT ?"""

PAGE_DOWN = """
    SELECT place, id, role, created_at, CAST(body AS BLOB), tokens
    FROM {p}message WHERE place BETWEEN ? AND ? ORDER BY place LIMIT ?"""

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
