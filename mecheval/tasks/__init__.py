"""The tasks, and the registry that names them."""

from mecheval.core.registry import Registry
from mecheval.core.spec import Spec

tasks = Registry("task")
tasks.add("recall", "mecheval.tasks.recall:Recall")
tasks.add("treecall", "mecheval.tasks.treecall:Treecall")
for name in ("overwrite", "compose", "hops", "spans", "copy", "track", "hop_induction", "ngram"):
    tasks.add(name, f"mecheval.tasks.{name}:{name.title().replace('_', '')}")

for name, text, summary in (
    ("ar_32pairs", "recall:pairs=32", "AR as the paper's text has it"),
    ("ar_16pairs", "recall:pairs=16", "AR as the paper's numbers come from"),
    ("atr", "treecall", "ATR as the paper has it most often: L_max 5, 20 terminals"),
    ("atr_8192", "treecall:terminals=8192", "ATR with 8,192 terminals, together as likely as 20"),
    ("atr_l10", "treecall:max_rhs=10", "ATR with longer productions: L_max 10"),
    ("atr_split", "treecall:held_out=0.2", "ATR with a fifth of the pairs asked only in test"),
    ("atr_sibling", "treecall:query=sibling", "ATR with queries for the rightmost sibling"),
    ("atr_grandparent", "treecall:query=grandparent", "ATR two steps up the tree"),
    ("ar_twice", "recall:pairs=16,passes=2", "AR with every pair read twice"),
    ("mqar", "recall:pairs=4,queries=4,slots=28,gaps=0.01", "MQAR with 4 pairs in 64 tokens"),
    ("compose_9", "compose:grid=3,queries=9", "keys of two tokens on a 3 × 3 grid"),
    ("compose_quick", "compose:vocab=48", "keys of two tokens in minutes"),
    ("depo1", "hops:nodes=225,min_nodes=3,vocab=512", "up to 225 nodes and 8 hops, as in Depo1"),
    ("depo2", "hops:hops=16,min_nodes=3", "up to 75 nodes and 16 hops, as in Depo2"),
    ("hops_quick", "hops:nodes=6,hops=2,queries=4,vocab=16", "one or two hops in minutes"),
    ("fuzzy", "spans:pairs=30,vocab=16", "spans of 1 to 3 tokens as in fuzzy recall"),
    ("spans_quick", "spans:pairs=4,key_tokens=2,value_tokens=2,vocab=32", "spans in minutes"),
    ("copy_quick", "copy:count=4,blanks=8,vocab=8", "selective copying in minutes"),
    ("track_z60", "track:group=Z60", "running sums, which commute"),
    ("track_s5", "track:group=S5", "running products in S5"),
    ("track_quick", "track:group=S3,length=16", "running products in minutes"),
    ("hop_induction_quick", "hop_induction:length=32,hops=2", "induction in hops, in minutes"),
    ("ngram_3", "ngram:order=3,vocab=2,length=200", "Markov chains of order 3"),
    ("ngram_quick", "ngram:vocab=3,length=48", "Markov chains in minutes"),
    (
        "mqar_512",
        "recall:pairs=64,queries=64,slots=192,gaps=0.01",
        "MQAR with 64 pairs in 512 tokens",
    ),
    ("overwrite_quick", "overwrite:pairs=4,updates=2,queries=4,vocab=64", "overwrite in minutes"),
):
    tasks.add_preset(name, Spec.parse(text), summary)
