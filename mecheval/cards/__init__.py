"""The mechanism card: what there is to say about one mixer, on one page, in minutes."""
