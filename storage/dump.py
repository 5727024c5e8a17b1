"""Dump: every row of one study, and back again in another database of any kind.

Flow: `db export` -> dump_study HERE -> rows as plain JSON values -> a file -> load_study HERE -> `db import`.
Which rows belong to a study is read from the schema's foreign keys, so that a table that is added later comes along.
Leases and activities stay behind: who works on a trial in one database does not work on it in another.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from storage.database import Database
from storage.errors import AlreadyExistsError, CorruptError, NotFoundError
from storage.schema import TABLE_PREFIX, Activity, Base, Context, Lease, Study, Trial, UtcDateTime

Row = dict[str, Any]
Rows = Mapping[str, Sequence[Row]]  # by table

_CHUNK = 500  # databases limit how many values a query may name
_STUDY, _CONTEXT, _TRIAL = Study.__tablename__, Context.__tablename__, Trial.__tablename__
_LEFT_BEHIND = (Activity.__tablename__, Lease.__tablename__)


def dump_study(database: Database, name: str) -> dict[str, list[Row]]:
    """Every row of a study by table, as it is at one moment, oldest first. Raises: NotFoundError."""
    owned, shared = _tables()
    with database.reading() as session:
        study = sa.select(Study.__table__).where(Study.name == name)
        found: dict[str, list[Row]] = {_STUDY: [_plain(row) for row in session.execute(study).mappings()]}
        if not found[_STUDY]:
            raise NotFoundError(f"there is no study {name!r}", hint="python -m tuner study list")
        for table, column in owned.items():
            parents = [row["id"] for row in found[_target(column)]]
            found[table.name] = _select(session, table, column, parents)
        for table in shared:
            ids = {row[name] for rows in found.values() for row in rows for name in row if name in _columns_to(table)}
            found[table.name] = _select(session, table, table.c.id, sorted(ids - {None}))
    return found


def load_study(database: Database, rows: Rows, name: str) -> None:
    """Add a dumped study under `name`, all or nothing; trials count as not yet told to Optuna.

    Trials get new identities if theirs are in this database already.
    Raises: AlreadyExistsError if the name is taken; CorruptError for rows that do not fit the schema or each other.
    """
    owned, shared = _tables()
    study = Base.metadata.tables[_STUDY]
    tables = [*shared, study, *owned]
    if unknown := set(rows) - {table.name for table in tables}:
        raise CorruptError(f"there is no table {', '.join(sorted(unknown))}", hint="was it written by a newer version?")
    if len(rows.get(_STUDY, ())) != 1:
        raise CorruptError("it does not hold one study")
    with database.writing() as session:
        if session.scalar(sa.select(Study.id).where(Study.name == name)) is not None:
            raise AlreadyExistsError(f"a study named {name!r} exists", hint="give another name with --as")
        prepared = _renamed(_with_new_identities(session, rows), name)
        ids: dict[str, dict[int, int]] = {}
        for table in tables:
            ids[table.name] = _insert(session, table, prepared.get(table.name, ()), ids, table in shared)


def _tables() -> tuple[dict[sa.Table, sa.Column[Any]], list[sa.Table]]:
    """Tables whose rows belong to a study, each with the column that says to which row; and tables that many share."""
    owned: dict[sa.Table, sa.Column[Any]] = {}
    study = Base.metadata.tables[_STUDY]
    for table in Base.metadata.sorted_tables:
        if table.name in _LEFT_BEHIND or table is study:
            continue
        to_owned = [c for c in table.c for key in c.foreign_keys if key.column.table in (study, *owned)]
        if to_owned:
            owned[table] = min(to_owned, key=lambda column: bool(column.nullable))
    own = {study, *owned}
    shared = {key.column.table for table in own for key in table.foreign_keys} - own
    return owned, [table for table in Base.metadata.sorted_tables if table in shared]


def _target(column: sa.Column[Any]) -> str:
    return next(key.column.table.name for key in column.foreign_keys)


def _columns_to(table: sa.Table) -> set[str]:
    """Names of the columns, of any table, that refer to rows of this one."""
    return {
        column.name
        for other in Base.metadata.sorted_tables
        for column in other.c
        for key in column.foreign_keys
        if key.column.table is table
    }


def _select(session: Session, table: sa.Table, column: sa.Column[Any], values: Sequence[int]) -> list[Row]:
    found = []
    for start in range(0, len(values), _CHUNK):
        statement = sa.select(table).where(column.in_(values[start : start + _CHUNK]))
        found += [_plain(row) for row in session.execute(statement).mappings()]
    return sorted(found, key=lambda row: int(row["id"]))


def _plain(row: Mapping[Any, Any]) -> Row:
    return {str(name): value.isoformat() if isinstance(value, datetime) else value for name, value in dict(row).items()}


def _with_new_identities(session: Session, rows: Rows) -> Rows:
    """The rows as they are, or with other trial identities everywhere if one of them is taken here."""
    uids = [str(row["uid"]) for row in rows.get(_TRIAL, ())]
    for start in range(0, len(uids), _CHUNK):
        taken = sa.select(Trial.id).where(Trial.uid.in_(uids[start : start + _CHUNK])).limit(1)
        if session.scalar(taken) is not None:
            names = {uid: str(uuid.uuid4()) for uid in uids}
            return {table: [_replaced(row, names) for row in found] for table, found in rows.items()}
    return rows


def _replaced(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, names) for inner in value]
    return names.get(value, value) if isinstance(value, str) else value


def _renamed(rows: Rows, name: str) -> dict[str, Sequence[Row]]:
    """The rows of a study of another name, its Optuna studies included; none has told Optuna of its trials."""
    study = rows[_STUDY][0]
    before = str(study.get("name"))
    contexts = [
        {**row, "optuna_study": name + str(row["optuna_study"]).removeprefix(before)} for row in rows.get(_CONTEXT, ())
    ]
    trials = [{**row, "told": False} for row in rows.get(_TRIAL, ())]
    return {**rows, _STUDY: [{**study, "name": name}], _CONTEXT: contexts, _TRIAL: trials}


def _insert(
    session: Session, table: sa.Table, rows: Sequence[Row], ids: Mapping[str, Mapping[int, int]], is_shared: bool
) -> dict[int, int]:
    """Insert rows in the order given; returns their new keys by the old ones where others may refer to them."""
    made: dict[int, int] = {}
    is_leaf = not any(key.column.table is table for other in Base.metadata.sorted_tables for key in other.foreign_keys)
    ready = []
    for row in rows:
        values = _values(table, row, {**ids, table.name: made})
        if is_leaf:
            ready.append(values)
            continue
        key = session.scalar(sa.select(table.c.id).where(table.c.digest == values["digest"])) if is_shared else None
        if key is None:
            key = session.execute(sa.insert(table).values(values).returning(table.c.id)).scalar_one()
        made[int(row["id"])] = int(key)
    for group in _alike(ready):
        session.execute(sa.insert(table), group)
    return made


def _alike(rows: Sequence[Row]) -> list[list[Row]]:
    """Runs of rows that name the same columns: what one statement can insert."""
    groups: list[list[Row]] = []
    for row in rows:
        if groups and groups[-1][0].keys() == row.keys():
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _values(table: sa.Table, row: Row, ids: Mapping[str, Mapping[int, int]]) -> Row:
    """A row as the database takes it: without its key, with the new keys of what it refers to. Absent is NULL."""
    if unknown := set(row) - set(table.c.keys()):
        raise CorruptError(
            f"{table.name} has no column {', '.join(sorted(unknown))}", hint="was it written by a newer version?"
        )
    found: Row = {}
    for column in table.c:
        value = row.get(column.name)
        if column.name == "id" or value is None:
            continue
        if column.foreign_keys:
            value = ids.get(_target(column), {}).get(value)
            if value is None:  # it refers to a row of another study
                continue
        found[column.name] = _typed(table, column, value)
    for column in table.c:
        if column.name not in found and not (column.nullable or column.primary_key or column.default):
            kind = table.name.removeprefix(TABLE_PREFIX)
            raise CorruptError(f"a {kind} has no {column.name}, or one that is not there")
    return found


def _typed(table: sa.Table, column: sa.Column[Any], value: Any) -> Any:
    expected: type | tuple[type, ...] = object
    if isinstance(column.type, UtcDateTime):
        try:
            return datetime.fromisoformat(value)
        except (TypeError, ValueError) as error:
            raise CorruptError(f"{table.name}.{column.name}: {value!r} is no time") from error
    if isinstance(column.type, sa.String):
        expected = str
    elif isinstance(column.type, sa.Boolean | sa.Integer | sa.Float):
        expected = (bool, int, float)
    if not isinstance(value, expected):
        raise CorruptError(f"{table.name}.{column.name}: {value!r} is of a wrong type")
    return value
