"""Report: what a study found, on one page that can be sent to a colleague.

Flow: a study in the database -> gather.py -> facts.py -> figures/ and page.py (HTML), markdown.py, as_json.py.
plotly is imported in figures/ and page.py alone.
"""
