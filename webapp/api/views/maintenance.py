"""Maintenance: requests of runs, each at most once by its `Idempotency-Key`, and what became of them."""

from django.urls import reverse
from rest_framework.request import Request
from rest_framework.response import Response

from tidegauge.webapp.accounts.key_options import Scope
from tidegauge.webapp.accounts.permissions import key_scope
from tidegauge.webapp.api.api_view import ApiView, link_to_next, requester, visible_to
from tidegauge.webapp.api.calls import call, page_of
from tidegauge.webapp.api.idempotent import idempotent, marked
from tidegauge.webapp.api.list_cursor import ListQuery
from tidegauge.webapp.api.openapi import LOCATION, NEXT, ONCE
from tidegauge.webapp.api.parameters import RunsParameters
from tidegauge.webapp.catalog.documents import RunSerializer
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.maintenance import services

HEADERS = [*ONCE, LOCATION]


class StateMaintenanceView(ApiView):
    """Requests a run; a subclass sets its kind."""

    kind = ""
    scopes = {"POST": Scope.MAINTAIN}

    def request_run(self, request: Request, name: str) -> Response:
        key_scope(request).check_whole_state(name)
        wanted = {"kind": self.kind, "state": name, "requested_by": requester(request)}
        once = idempotent(request)
        if once is None:
            return _accepted(services.request_maintenance(**wanted))
        run, is_repeated = services.request_maintenance_once(**wanted, request=once)
        return marked(_accepted(visible_to(request).of_run(run)), is_repeated=is_repeated)


class CompactionView(StateMaintenanceView):
    kind = MaintenanceRun.Kind.COMPACTION

    @call("compact_state", "maintenance", RunSerializer, "The run, queued.", 409, 422, status=202, headers=HEADERS)
    def post(self, request: Request, name: str) -> Response:
        """Compact a state.

        Queues a run that frees space: it deletes versions older than histories and `at_txid` reach, 168 hours by
        default, and what is left of removed keys. Committed values do not change. A state has one unfinished run at a
        time; while there is one, the answer is a 409. `Location` is where to follow the run.
        """
        return self.request_run(request, name)


class ExpiryView(StateMaintenanceView):
    kind = MaintenanceRun.Kind.EXPIRY

    @call("expire_state", "maintenance", RunSerializer, "The run, queued.", 409, 422, status=202, headers=HEADERS)
    def post(self, request: Request, name: str) -> Response:
        """Delete the expired entries of a state.

        Queues a run that deletes the entries whose time to live (`ttl_seconds` of the state) has passed. Lookups
        already answer `expired` for them, afterwards `missing`. A state has one unfinished run at a time; while there
        is one, the answer is a 409. `Location` is where to follow the run.
        """
        return self.request_run(request, name)


class RunsView(ApiView):
    parameters = {"GET": RunsParameters}

    @call("list_runs", "maintenance", page_of("runs", RunSerializer), "A page.", headers=[NEXT])
    def get(self, request: Request) -> Response:
        """List the maintenance runs, newest first, in pages.

        Those that were requested, and those of the schedule. Finished ones are deleted after $TIDEGAUGE_KEEP_DAYS days.
        Send `next` of a page as `cursor` to get the following one; it is null on the last page.
        """
        asked = RunsParameters.read(request.query_params.dict())
        query, limit = ListQuery.read("runs", asked, ("state", "kind", "status")), asked["limit"]
        found = visible_to(request).runs(before=query.before, limit=limit + 1, **query.narrowed)
        runs, cursor = query.page(found, limit, lambda run: run.pk)
        document = {"runs": RunSerializer(runs, many=True).data, "next": cursor}
        return Response(document, headers=link_to_next(request, cursor))


class RunView(ApiView):
    scopes = {"DELETE": Scope.MAINTAIN}

    @call("get_run", "maintenance", RunSerializer, "The run.")
    def get(self, request: Request, run_id: int) -> Response:
        """Show a maintenance run.

        Its status, how many rows it has looked at and removed, and once it has ended, rows and bytes before and after,
        or the error.
        """
        return Response(RunSerializer(visible_to(request).run(run_id)).data)

    @call("cancel_run", "maintenance", RunSerializer, "The run, cancelled.", 409, status=202, headers=[LOCATION])
    def delete(self, request: Request, run_id: int) -> Response:
        """Cancel a maintenance run.

        A queued run ends at once, a running one after the page of rows that it is at; what it has deleted stays
        deleted. A run that has ended is a 409.
        """
        visible = visible_to(request)
        visible.scope.check_whole_state(visible.run(run_id).state_id)
        return _accepted(visible.of_run(services.cancel_maintenance(run_id, requested_by=visible.requester)))


def _accepted(run: MaintenanceRun) -> Response:
    return Response(RunSerializer(run).data, status=202, headers={"Location": reverse("lookup:run", args=[run.id])})
