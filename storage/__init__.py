"""Storage remembers: studies, contexts, trials and large files, in an SQL database and an artifact folder."""
