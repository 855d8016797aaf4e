"""Workloads with data, queries and an independent check: network monitoring and Linear Road."""
