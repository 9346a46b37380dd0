"""Other people's session stores, each driven by a script that runs in an environment of its own."""
