"""What the lists share: read-only, on the queue's own database, and as fast with a million rows as with ten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db import router
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.functional import cached_property
from django.utils.text import capfirst

from ..drivers import connections
from ..models import Job, StoreNow

M = TypeVar("M", bound=Model)

if TYPE_CHECKING:

    class _ModelAdmin(admin.ModelAdmin[M]): ...

    class _Paginator(Paginator[Any]): ...

else:

    class _Generic:
        def __class_getitem__(cls, item):
            return cls

    class _ModelAdmin(_Generic, admin.ModelAdmin): ...

    _Paginator = Paginator

MAX_COUNTED = 10_000
ROWS_PER_PAGE = 50
VIEW_PAYLOAD = "django_jobqueue.view_payload_job"


def queue_database() -> str:
    """The alias that holds the tables: that of the first connection, in the order of CONNECTIONS, that has one.

    Connections whose tables live on further aliases are not on these pages; commands reach them all.
    """
    for driver in connections.all():
        if driver.database is not None:
            return driver.database
    return router.db_for_write(Job)


def may_view_payload(request: HttpRequest) -> bool:
    return request.user.has_perm(VIEW_PAYLOAD)


class CappedPaginator(_Paginator):
    """Counts to ``MAX_COUNTED`` and no further; older rows are reached by filters and search."""

    @cached_property
    def _counted(self) -> int:
        rows = cast("QuerySet[Any]", self.object_list)
        return rows.order_by().values("pk")[: MAX_COUNTED + 1].count()

    @property
    def is_capped(self) -> bool:
        return self._counted > MAX_COUNTED

    @cached_property
    def count(self) -> int:
        return min(self._counted, MAX_COUNTED)


class BoundedChangeList(ChangeList):
    model_admin: QueueModelAdmin[Any]

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        return super().get_queryset(request, *args, **kwargs).defer(*self.model_admin.heavy_columns)

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        """The primary key in the direction of the column before it, so that one index serves both."""
        ordering = list(super().get_ordering(request, queryset))
        if ordering[-1] == "-pk" and len(ordering) > 1 and not str(ordering[-2]).startswith("-"):
            ordering[-1] = "pk"
        return ordering


class QueueModelAdmin(_ModelAdmin[M]):
    """Rows that no page adds, edits or deletes. What people do to them are acts with permissions of their own."""

    heavy_columns: ClassVar[tuple[str, ...]] = ("payload", "errors", "metadata", "masked", "flow")

    list_per_page = ROWS_PER_PAGE
    list_max_show_all = 0
    show_full_result_count = False
    paginator = CappedPaginator
    show_facets = admin.ShowFacets.NEVER
    date_hierarchy = None
    ordering: ClassVar[tuple[str, ...]] = ("-id",)
    sortable_by: ClassVar[tuple[str, ...]] = ()
    fields = ()
    change_form_template = "admin/django_jobqueue/change_form.html"

    class Media:
        css: ClassVar = {"all": ("django_jobqueue/admin.css",)}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Django's page for deleting, and its action, load every row; forgetting is an act of ours."""
        return False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Only our filters: ``?payload__contains=`` would tell a viewer what no page shows, by reading every row."""
        return any(lookup == getattr(list_filter, "parameter_name", None) for list_filter in self.list_filter)

    def get_queryset(self, request: HttpRequest) -> QuerySet[M]:
        rows = super().get_queryset(request).using(queue_database()).order_by()
        return cast("QuerySet[M]", rows.annotate(store_now=StoreNow()))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return BoundedChangeList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        title = capfirst(str(self.opts.verbose_name_plural))
        return super().changelist_view(request, {"title": title, **(extra_context or {})})

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        row = context["original"]
        return super().render_change_form(request, {**context, **self.detail(request, row)}, *args, **kwargs)

    def detail(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """What the template of one row shows."""
        raise NotImplementedError
