"""The device on which a trial, a re-timing of the default or a process pair ran

Revision: 0004, after 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_TABLES = ("tuner_trial", "tuner_control", "tuner_pair")
# Until now one run used one device: the one that its environment was recorded with.
_OF_CONTEXT = """UPDATE {table} SET device = (
    SELECT e.device FROM tuner_environment e JOIN tuner_context c ON c.environment_id = e.id
    WHERE c.id = {table}.context_id){where}"""
_OF_CONFIRMATION = """UPDATE tuner_pair SET device = (
    SELECT e.device FROM tuner_environment e JOIN tuner_context c ON c.environment_id = e.id
    JOIN tuner_confirmation f ON f.context_id = c.id WHERE f.id = tuner_pair.confirmation_id)"""


def upgrade() -> None:
    for table in _TABLES:
        with op.batch_alter_table(table, schema=None) as batch_op:
            batch_op.add_column(sa.Column("device", sa.String(length=128), nullable=False, server_default=""))
    op.execute(_OF_CONTEXT.format(table="tuner_trial", where=" WHERE finished_at IS NOT NULL"))
    op.execute(_OF_CONTEXT.format(table="tuner_control", where=""))
    op.execute(_OF_CONFIRMATION)
