"""Search: the only room that knows Optuna: what to try next, and the Optuna study that others look at."""
