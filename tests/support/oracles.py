"""A plain solver for each task: it reads the tokens of one document and answers every query."""

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


def solve(task, docs, i):
    """The answers to row i by the solver that has the name of the task's class."""
    tokens = docs.tokens[i, : docs.lengths[i]].tolist()
    solver = globals()[type(task).__name__.lower()]
    return solver(task, tokens, docs.queries[i].tolist())
