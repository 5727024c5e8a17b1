"""Report: rows of runs as a text table."""


def write(rows, out):
    pass
