"""The statements about leases, about those who wait for them, and about texts for their holders.

A write behind a lease holds its row against others that would take it, and so does whatever changes anything here.
"""

from __future__ import annotations

from leafward.stores.leases import MOST_WAITING

SLOT = "user_id = ? AND session_id = ?"

GET_LEASE = f"SELECT token, holder, expires_at, label, since, process FROM {{p}}lease WHERE {SLOT}"

CHECK_LEASE = f"SELECT 1 FROM {{p}}lease WHERE {SLOT} AND token = ? AND holder IS NOT NULL"

ADD_LEASE = "INSERT INTO {p}lease (user_id, session_id, token, holder, expires_at) VALUES (?, ?, 0, NULL, 0)"

# What is held is left alone.
DROP_LEASE = f"DELETE FROM {{p}}lease WHERE {SLOT} AND (holder IS NULL OR expires_at <= ?)"

SET_LEASE = f"""
    UPDATE {{p}}lease SET token = ?, holder = ?, expires_at = ?, label = ?, since = ?, process = ? WHERE {SLOT}"""

KEEP_LEASE = f"UPDATE {{p}}lease SET expires_at = ? WHERE {SLOT} AND holder = ?"

END_LEASE = f"""
    UPDATE {{p}}lease SET holder = NULL, expires_at = 0, label = NULL, process = NULL WHERE {SLOT} AND holder = ?"""

ADD_TICKET = "INSERT INTO {p}ticket (user_id, session_id, holder, expires_at, process) VALUES (?, ?, ?, ?, ?)"

KEEP_TICKET = f"UPDATE {{p}}ticket SET expires_at = ? WHERE {SLOT} AND holder = ?"

LIST_TICKETS = f"SELECT holder, expires_at, process FROM {{p}}ticket WHERE {SLOT} ORDER BY ticket_no"

DROP_TICKET = f"DELETE FROM {{p}}ticket WHERE {SLOT} AND holder = ?"

DROP_DEAD_TICKETS = f"DELETE FROM {{p}}ticket WHERE {SLOT} AND expires_at <= ?"

# Texts for holders.

ADD_TEXT = "INSERT INTO {p}sent (user_id, session_id, label, text) VALUES (?, ?, ?, ?)"

IS_FULL = f"""
    SELECT 1 FROM {{p}}sent WHERE {SLOT} AND (label IS NULL OR label = ?) LIMIT 1 OFFSET {MOST_WAITING - 1}"""

HAS_WAITING = f"SELECT 1 FROM {{p}}sent WHERE {SLOT} AND (label IS NULL OR label = ?) LIMIT 1"

HAS_TEXTS = f"SELECT 1 FROM {{p}}sent WHERE {SLOT} LIMIT 1"

DROP_TEXTS = f"DELETE FROM {{p}}sent WHERE {SLOT}"

DROP_RECEIVED = f"DELETE FROM {{p}}sent WHERE {SLOT} AND sent_no <= ? AND (label IS NULL OR label = ?)"

_FOR_HOLDER = "s.user_id = l.user_id AND s.session_id = l.session_id AND (s.label IS NULL OR s.label = l.label)"

# The holder, in each row, and the texts that wait for it; one row without a text if there are none.
LIST_TEXTS = f"""
    SELECT l.holder, s.sent_no, s.text FROM {{p}}lease l LEFT JOIN {{p}}sent s ON {_FOR_HOLDER}
    WHERE l.user_id = ? AND l.session_id = ? ORDER BY s.sent_no"""

AT_ONCE = 40
"""How many slots are named in one statement; for more it asks for all."""

WAITING_IN = f"""
    SELECT l.user_id, l.session_id FROM {{p}}lease l
    WHERE ({" OR ".join(["(l.user_id = ? AND l.session_id = ?)"] * AT_ONCE)})
        AND EXISTS (SELECT 1 FROM {{p}}sent s WHERE {_FOR_HOLDER})"""

WAITING_ANYWHERE = f"SELECT DISTINCT l.user_id, l.session_id FROM {{p}}sent s JOIN {{p}}lease l ON {_FOR_HOLDER}"

ENOUGH_ALONE = frozenset({LIST_TEXTS, WAITING_IN, WAITING_ANYWHERE, HAS_TEXTS})
"""Statements that give all that is asked for."""
