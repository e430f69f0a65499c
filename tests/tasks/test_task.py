import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "line"),
    [
        ("task.documents(0, 'tset', 0, 1)", "split=tset must be one of train, dev, test"),
        ("task.documents(0, 'test', 5, 1)", "documents 5 to 1 must be 0 ≤ start ≤ stop"),
        ("task.documents(0, 'test', -1, 1)", "documents -1 to 1 must be 0 ≤ start ≤ stop"),
        ("task.documents(-1, 'test', 0, 1)", "seed=-1 must be an integer from 0 to 4294967295"),
        ("task.corrupt(docs, 'bos', 0)", "role=bos must be one of key, value, query"),
        ("task.corrupt(docs, 'key', -1)", "seed=-1 must be an integer from 0 to 4294967295"),
        (
            "task.corrupt(docs, 'key', 0, 'shuffle')",
            "kind=shuffle must be one of resample, swap; '--plugin file.py' registers yours",
        ),
        ("mecheval.Recall(pairs=0)", "pairs=0 must be an integer from 1 to 4096"),
        ("mecheval.Recall(pairs='8')", 'pairs="8" must be an integer from 1 to 4096'),
        ("mecheval.Treecall(head='top')", "head=top must be one of left, right"),
    ],
)
def test_the_python_door_refuses_in_the_same_words(call, line):
    """In a process of its own: here the annotations would speak first."""
    code = f"""
import mecheval
task = mecheval.Recall(pairs=4, vocab=32)
docs = task.documents(0, "test", 0, 3)
try:
    {call}
except mecheval.InvalidInput as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == line
