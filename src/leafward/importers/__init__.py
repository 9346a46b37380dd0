"""Data of other projects, moved into a store of ours."""
