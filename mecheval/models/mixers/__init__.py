"""One file for each mixer, named as users name it."""
