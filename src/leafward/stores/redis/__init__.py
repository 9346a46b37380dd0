"""`redis://`: sessions on a Redis server, behind sentinels or in a cluster."""
