"""A plain solver for each task: it reads the tokens of one document and answers every query."""

from itertools import permutations

import numpy as np

from mecheval.tasks.documents import DIVIDER, FIRST_SYMBOL, NO_ANSWER


def overwrite(task, tokens, queries):
    memory = {}
    divider = tokens.index(DIVIDER)
    for place in range(1, divider, 2):
        memory[tokens[place]] = tokens[place + 1]
    return [memory.get(tokens[query], NO_ANSWER) for query in queries]


def compose(task, tokens, queries):
    memory = {}
    for place in range(1, tokens.index(DIVIDER), 3):
        memory[tokens[place], tokens[place + 1]] = tokens[place + 2]
    return [memory.get((tokens[query - 1], tokens[query]), NO_ANSWER) for query in queries]


def hops(task, tokens, queries):
    divider = tokens.index(DIVIDER)
    successor = dict(zip(tokens[1:divider:2], tokens[2:divider:2], strict=True))
    answers = []
    for query in queries:
        node = tokens[query]
        for _ in range(tokens[query - 1] - FIRST_SYMBOL - task.vocab + 1):
            node = successor.get(node, NO_ANSWER)
        answers.append(node)
    return answers


def spans(task, tokens, queries):
    divider, middle = tokens.index(DIVIDER), FIRST_SYMBOL + task.vocab // 2
    memory, key = {}, ()
    for place, token in enumerate(tokens[1:divider], 1):
        if token < middle:
            key = (*key, token) if tokens[place - 1] < middle and place > 1 else (token,)
            value = []
        else:
            value.append(token)
            memory[key] = value
    found = memory.get(tuple(tokens[divider + 1 : queries[0] + 1]), [])
    steps = [query - queries[0] for query in queries]
    return [found[step] if step < len(found) else NO_ANSWER for step in steps]


def copy(task, tokens, queries):
    divider, blank = tokens.index(DIVIDER), FIRST_SYMBOL + task.vocab
    symbols = [token for token in tokens[1:divider] if token != blank]
    return [symbols[query - divider - 1] for query in queries]


def track(task, tokens, queries):
    """Multiply permutations as dictionaries, or add."""
    elements = [token - FIRST_SYMBOL for token in tokens[1:]]
    if task.group == "Z60":
        return [FIRST_SYMBOL + sum(elements[:query]) % 60 for query in queries]
    members = [list(p) for p in permutations(range(int(task.group[1])))]
    if task.group[0] == "A":
        members = [p for p in members if round(np.linalg.det(np.eye(len(p))[p])) == 1]
    answers = {}
    state = members[0]
    for step, element in enumerate(elements, 1):
        state = [members[element][x] for x in state]
        answers[step] = FIRST_SYMBOL + members.index(state)
    return [answers[query] for query in queries]


def hopinduction(task, tokens, queries):
    letters = tokens[2:]
    answers = []
    for query in queries:
        place = query - 2
        for _ in range(tokens[1] - FIRST_SYMBOL - task.letters + 1):
            earlier = letters[: max(place, 0)]
            if place < 0 or letters[place] not in earlier:
                place = -1
            else:
                place -= earlier[::-1].index(letters[place])
        answers.append(letters[place] if place >= 0 else task.none)
    return answers


def ngram(task, tokens, queries):
    after = {}
    for i in range(1, len(tokens) - task.order):
        after.setdefault(tuple(tokens[i : i + task.order]), []).append(tokens[i + task.order])
    follows = after.get(tuple(tokens[-task.order :]), [NO_ANSWER])
    return [max(follows[::-1], key=follows.count)]


def solve(task, docs, i):
    """The answers to row i by the solver that has the name of the task's class."""
    tokens = docs.tokens[i, : docs.lengths[i]].tolist()
    solver = globals()[type(task).__name__.lower()]
    return solver(task, tokens, docs.queries[i].tolist())
