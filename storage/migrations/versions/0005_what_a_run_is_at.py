"""What a run is at, so that another process can show it

Revision: 0005, after 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tuner_activity",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("context_id", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(length=36), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("started_s", sa.Double(), nullable=False),
        sa.Column("device", sa.String(length=128), nullable=False),
        sa.Column("words", sa.String(length=255), nullable=False),
        sa.Column("since", sa.DateTime(), nullable=False),
        sa.Column("heartbeat_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["context_id"], ["tuner_context.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("owner", "device"),
    )
    with op.batch_alter_table("tuner_activity", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_tuner_activity_context_id"), ["context_id"], unique=False)
