"""What is kept: run folders that are complete or absent, and a table over many of them."""
