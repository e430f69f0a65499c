"""What is read off a model: rows with columns, each with an interval."""
