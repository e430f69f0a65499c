"""Room 2, models with sites."""
