"""The figures of the paper and those beyond it: one function each, registered by `all_figures`."""


def all_figures() -> list[str]:
    """The names that `mecheval figure` takes."""
    from mecheval.paper import beyond  # noqa: F401
    from mecheval.paper import figures as _figures  # noqa: F401
    from mecheval.report import verdict_figure  # noqa: F401, importing one registers its figures
    from mecheval.report.drawing import figures

    return list(figures)
