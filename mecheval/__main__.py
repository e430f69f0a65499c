"""`python -m mecheval` is the command `mecheval`."""

from mecheval.cli import script

if __name__ == "__main__":
    script()
