"""What a context took over from its parents

Revision: 0003, after 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("tuner_context", schema=None) as batch_op:
        batch_op.add_column(sa.Column("carried", sa.JSON(), nullable=True))
