"""The mechanism card: everything that is measured about how one mixer recalls, on one page."""
