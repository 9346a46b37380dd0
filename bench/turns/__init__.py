"""Turns of an agent: what they cost, beside the loops of other libraries."""
