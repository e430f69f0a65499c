"""The figures of the paper and those beyond it: one function each, registered by `all_figures`."""


def all_figures() -> list[str]:
    """The names that `mecheval figure` takes."""
    from mecheval.report.figures import beyond, paper, verdict  # noqa: F401, importing one registers its figures
    from mecheval.report.figures.drawing import figures

    return list(figures)
