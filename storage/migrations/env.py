"""Alembic's entry: run migrations on the connection that storage/migrate.py hands over."""

from __future__ import annotations

from alembic import context

from storage.migrate import VERSION_TABLE, _is_ours
from storage.schema import Base

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    include_object=_is_ours,
    render_as_batch=connection.dialect.name == "sqlite",
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
