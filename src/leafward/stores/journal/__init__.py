"""A session's journal: lines that tell, in order, what was done to it."""
