"""The address at which a page of the project follows a job: ``path("jobqueue/", include("django_jobqueue.urls"))``.

Without a login: the token is signed, and expires. It answers a percentage, a stage and a state, and nothing else.
"""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import path
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from .drivers import connections
from .operations.progress import as_json, how_far

app_name = "django_jobqueue"

# By which htmx is told to poll no longer.
STOP_POLLING = 286


@require_safe
@never_cache
def progress(request: HttpRequest, token: str) -> HttpResponse:
    """How far the job of a token is: JSON, or for htmx the element of ``{% job_progress %}``.

    503 while one of the stores in which the job may be is out of reach; both scripts then ask again.
    """
    outages = tuple(outage for driver in connections.all() for outage in driver.outages)
    try:
        found = how_far(token)
    except outages:
        return HttpResponse("A store of the queue is out of reach.", status=503, content_type="text/plain")
    if request.headers.get("HX-Request"):
        context = {"found": found, "token": token}
        # A token that has expired meanwhile is an end too: after a 404 htmx would go on for ever.
        status = STOP_POLLING if found is None or found.is_over else 200
        return render(request, "django_jobqueue/progress.html", context, status=status)
    if found is None:
        raise Http404("This token is not valid, or it has expired.")
    return JsonResponse(as_json(found))


urlpatterns = [path("progress/<str:token>/", progress, name="progress")]
