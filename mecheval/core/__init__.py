"""What every room builds on: errors, specs, options and the registry."""
