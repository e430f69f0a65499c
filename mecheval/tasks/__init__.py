"""The tasks, and the registry that names them."""

from mecheval.core.registry import Registry
from mecheval.core.spec import Spec

tasks = Registry("task")
tasks.add("recall", "mecheval.tasks.recall:Recall")
tasks.add("treecall", "mecheval.tasks.treecall:Treecall")

for name, text, summary in (
    ("ar_32pairs", "recall:pairs=32", "AR as the paper's text has it"),
    ("ar_16pairs", "recall:pairs=16", "AR as the paper's numbers come from"),
    ("atr", "treecall", "ATR as the paper has it most often: L_max 5, 20 terminals"),
    ("atr_8192", "treecall:terminals=8192", "ATR with 8,192 terminals, together as likely as 20"),
    ("atr_l10", "treecall:max_rhs=10", "ATR with longer productions: L_max 10"),
    ("atr_split", "treecall:held_out=0.2", "ATR with a fifth of the pairs asked only in test"),
    ("atr_sibling", "treecall:query=sibling", "ATR with queries for the rightmost sibling"),
    ("atr_grandparent", "treecall:query=grandparent", "ATR two steps up the tree"),
):
    tasks.add_preset(name, Spec.parse(text), summary)
