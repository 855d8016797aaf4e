"""Who takes part in a simulated run: nodes with the brain and recovery of real ones, clients, publishers,
readers."""
