"""Fault tests that keep their own ledger outside the store they test.

Run `python -m faults.torture` from the root of the repository; `tests/faults` runs short profiles of it.
"""
