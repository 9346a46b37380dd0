"""Stores on a server that keeps journals; each process has replicas of the sessions it uses."""
