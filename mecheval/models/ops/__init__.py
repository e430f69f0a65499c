"""Pure functions behind the mixers, each with a plain `*_ref` twin that reads like the equation, the test's truth."""
