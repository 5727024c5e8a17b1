"""Controls, confirmations and pairs

Revision: 0002, after 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "tuner_confirmation",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("context_id", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("finalists", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.Column("finished_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(["context_id"], ["tuner_context.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("tuner_confirmation", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_tuner_confirmation_context_id"), ["context_id"], unique=False)

    op.create_table(
        "tuner_control",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("context_id", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("build", sa.Integer(), nullable=False),
        sa.Column("session", sa.Integer(), nullable=False),
        sa.Column("taken_at", sa.DateTime(), nullable=False),
        sa.Column("latency_ms", sa.Double(), nullable=False),
        sa.Column("timing", sa.JSON(), nullable=False),
        sa.Column("rounds", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["context_id"], ["tuner_context.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("tuner_control", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_tuner_control_context_id"), ["context_id"], unique=False)

    op.create_table(
        "tuner_pair",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("confirmation_id", sa.Integer(), nullable=False),
        sa.Column("finalist", sa.String(length=64), nullable=False),
        sa.Column("pair_index", sa.Integer(), nullable=False),
        sa.Column("build", sa.Integer(), nullable=False),
        sa.Column("baseline_build", sa.Integer(), nullable=False),
        sa.Column("log_ratio", sa.Double(), nullable=False),
        sa.Column("rounds", sa.JSON(), nullable=False),
        sa.Column("taken_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["confirmation_id"], ["tuner_confirmation.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("confirmation_id", "finalist", "pair_index"),
    )
    with op.batch_alter_table("tuner_context", schema=None) as batch_op:
        batch_op.add_column(sa.Column("noise", sa.JSON(), nullable=True))

    with op.batch_alter_table("tuner_verdict", schema=None) as batch_op:
        batch_op.add_column(sa.Column("confirmation_id", sa.Integer(), nullable=True))
        batch_op.create_foreign_key(
            "fk_tuner_verdict_confirmation", "tuner_confirmation", ["confirmation_id"], ["id"], ondelete="CASCADE"
        )
