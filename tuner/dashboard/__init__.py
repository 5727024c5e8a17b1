"""Dashboard: what Optuna Dashboard shows of a context, and how it is served.

Flow: attributes.py and note.py (pure) say it -> page.py writes it to the Optuna study, pages.py does so for a whole
database -> serve.py shows it, reading through storage.py. With search/ the only door to optuna, and the only one to
optuna_dashboard.
"""
