"""Results: many runs as tables, archives of them, and the plans of sweeps."""
