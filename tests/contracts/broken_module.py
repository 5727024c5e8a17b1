"""A user's module that cannot be imported, for a reason of its own."""

raise ValueError("the model zoo is closed")
