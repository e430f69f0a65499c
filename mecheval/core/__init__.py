"""Errors, specs, options and the registry, which every room builds on."""
