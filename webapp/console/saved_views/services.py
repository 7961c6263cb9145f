"""Creates, changes and deletes saved views, each with an entry in the audit log."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from psycopg import sql

from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.console.saved_views.models import MOST_OF_A_PERSON, Page, SavedView


class SavedViewError(ValueError):
    """The name is taken, or there are too many views."""


@contextmanager
def only_writer(owner: User) -> Iterator[None]:
    """Let only one request of a person write at a time, so that what it checked still holds when it writes."""
    with transaction.atomic():
        User.objects.select_for_update().get(pk=owner.pk)
        yield


def create_view(
    *, owner: User, state: str, page: Page, question: Mapping[str, Any], name: str, is_shared: bool
) -> SavedView:
    """Raises SavedViewError."""
    with only_writer(owner):
        _check_name(owner, name)
        if owner.saved_views.count() >= MOST_OF_A_PERSON:
            raise SavedViewError(f"you already have {MOST_OF_A_PERSON} saved views, the most allowed; delete one first")
        view = SavedView.objects.create(
            owner=owner, state=state, page=page, question=dict(question), name=name, is_shared=is_shared
        )
        _audit("create", view, question=view.question, is_shared=is_shared)
    return view


def change_view(view: SavedView, *, name: str, is_shared: bool) -> None:
    """Rename a view, share it or make it private. Raises SavedViewError."""
    with only_writer(view.owner):
        _check_name(view.owner, name, but=view)
        _update(view, name=name, is_shared=is_shared)
        _audit("change", view, name=name, is_shared=is_shared)


def replace_question(view: SavedView, question: Mapping[str, Any]) -> None:
    with transaction.atomic():
        _update(view, question=dict(question))
        _audit("replace", view, question=dict(question))


def delete_view(view: SavedView) -> None:
    with transaction.atomic():
        _audit("delete", view, question=view.question)
        SavedView.objects.filter(pk=view.pk).delete()


def rename_state(*, conn: psycopg.Connection, old: str, new: str, **_: Any) -> None:
    """Update views when a state is renamed, in the caller's transaction. A signal calls it."""
    table = sql.Identifier(SavedView._meta.db_table)
    conn.execute(sql.SQL("UPDATE {} SET state = %s WHERE state = %s").format(table), [new, old])


def _check_name(owner: User, name: str, but: SavedView | None = None) -> None:
    if owner.saved_views.filter(name=name).exclude(pk=but and but.pk).exists():
        raise SavedViewError(f"you already have a view named {name!r}; choose another name, or replace that view")


def _update(view: SavedView, **values: Any) -> None:
    # Not save(), because that would insert a view again that was deleted meanwhile.
    SavedView.objects.filter(pk=view.pk).update(**values, changed_at=timezone.now())


def _audit(act: str, view: SavedView, **detail: Any) -> None:
    record(f"view.{act}", f"saved view {view}", by=view.owner.get_username(), state=view.state, **detail)
