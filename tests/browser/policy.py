"""A middleware with a strict Content-Security-Policy, under which anything inline is refused, and complained of."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'"


def with_policy(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if request.path.startswith("/restock/"):
            response["Content-Security-Policy"] = POLICY
        return response

    return middleware
