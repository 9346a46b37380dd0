"""Typed state: what components save of themselves, a slot for each session of a user."""
