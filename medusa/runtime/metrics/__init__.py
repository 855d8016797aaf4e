"""Figures over HTTP for Prometheus and ``medusa top``."""
