"""A task's variables are what may be corrupted in its documents, each the token at one role."""

from mecheval.core.errors import InvalidInput

Role = str
VARIABLES: tuple[Role, ...] = ("key", "value", "query")


def variables_of(task: object) -> tuple[Role, ...]:
    """Return the roles whose token a task can corrupt: its `variables`, or those of recall."""
    return tuple(getattr(task, "variables", VARIABLES))


def check_role(task: object, role: Role) -> None:
    """Raise InvalidInput unless the role is a variable of the task."""
    if role not in variables_of(task):
        raise InvalidInput(f"role={role} must be one of {', '.join(variables_of(task))}")
