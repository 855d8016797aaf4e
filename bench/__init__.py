"""How fast Medusa is, always beside others in the same run. See docs/benchmarks.md."""
