"""What the real backend and its doubles for tests have in common: options, and which tasks they take."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from inspect import isasyncgenfunction, isgeneratorfunction
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured

from ...conf import get_settings
from ...dispatching.handler import Handler
from ...exceptions import InvalidOption
from ...jobs.names import check_queue
from .compat import AnyTask, BaseTaskBackend, InvalidTask, InvalidTaskBackend
from .options import BackendOptions, read
from .task import JobQueueTask


class TaskRules(BaseTaskBackend):
    """A backend with our options and tasks; Django makes one for each thread, so it holds nothing that changes."""

    task_class = JobQueueTask
    supports_defer = True
    supports_async_task = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._options, self._problems = read(alias, self.options)

    @property
    def checked_options(self) -> BackendOptions:
        """The options; raises InvalidTaskBackend that names the first wrong one."""
        if self._problems:
            raise InvalidTaskBackend(self._problems[0])
        return self._options

    @property
    def keep_results(self) -> float:
        """For how many seconds results are kept; the default where the option is wrong."""
        return self._options.keep_results

    def validate_task(self, task: AnyTask) -> None:
        """Raise InvalidTask for a task that could not run; by Django at import, and by us at each enqueue."""
        _check_is_no_job(task.func)
        super().validate_task(task)
        _check_function(task.func)
        try:
            check_queue(task.queue_name)
        except InvalidOption as error:
            raise InvalidTask(str(error)) from None

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """E101, E102: what is wrong with this entry of TASKS. Asks no database."""
        problems = [*self._problems, *self._queue_problems(), *self._connection_problems()]
        found: list[CheckMessage] = [Error(problem, id="django_jobqueue.E101") for problem in problems]
        if not apps.is_installed("django_jobqueue"):
            found.append(
                Error(
                    f'TASKS["{self.alias}"] needs the app django_jobqueue, which holds its tables and its worker.',
                    hint='Add "django_jobqueue" to INSTALLED_APPS, and run manage.py migrate.',
                    id="django_jobqueue.E102",
                )
            )
        return found

    def _connection_problems(self) -> list[str]:
        connection = self._options.connection
        with suppress(ImproperlyConfigured):  # E001 says so
            if connection is not None and connection not in get_settings().connections:
                return [
                    f'TASKS["{self.alias}"]["OPTIONS"]["CONNECTION"] names the connection {connection!r}, which '
                    'JOBQUEUE["CONNECTIONS"] lacks.'
                ]
        return []

    def _queue_problems(self) -> list[str]:
        problems = []
        for queue in sorted(self.queues, key=repr):
            try:
                check_queue(queue)
            except InvalidOption as error:
                problems.append(f'TASKS["{self.alias}"]["QUEUES"]: {error}')
        return problems


def _check_is_no_job(func: object) -> None:
    if isinstance(func, Handler):
        raise InvalidTask(
            f"@task cannot take {func!r}, which @job made; decorate the plain function. For both, leave the function "
            "as it is and give each a name: send_job = job(send); send_task = task(send)."
        )


def _check_function(func: Callable[..., Any]) -> None:
    """What Django lets through, and no worker could find, or run to its end."""
    where = f"{func.__module__}.{func.__qualname__}"
    if "<lambda>" in func.__qualname__ or "." in func.__qualname__:
        raise InvalidTask(f"@task cannot take {where}; define a function with a name at the top of the module.")
    if func.__module__ == "__main__":
        raise InvalidTask(
            f"@task cannot take {where}: a worker has another __main__. Move the function to the tasks.py of an app."
        )
    if isgeneratorfunction(func) or isasyncgenfunction(func):
        raise InvalidTask(f"@task cannot take the generator {where}: nothing would run it. Return instead of yield.")
