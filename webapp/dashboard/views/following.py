"""How the live pages of a pipeline or a state begin: somebody is signed in, it is there, and the tide has moved."""

from collections.abc import Callable
from functools import wraps

from django.http import HttpResponse
from django.views.decorators.http import require_safe

from state_backends.errors import UnknownNameError
from webapp.dashboard.live import is_seen, signed_in, tide, unchanged
from webapp.dashboard.views.missing import no_pipeline, no_state
from webapp.states import selectors
from webapp.states.selectors import PipelineStatus

View = Callable[..., HttpResponse]


def of_pipeline(view: View) -> View:
    """Call `view(request, pipeline, version, ..)` where there is something new to show of the named pipeline."""
    return _following(view, selectors.pipeline, no_pipeline)


def of_state(view: View) -> View:
    """Call `view(request, feeding, version, name)` where there is something new; feeding: the state's pipeline."""
    return _following(view, selectors.pipeline_of, no_state, keeps_name=True)


def _following(view: View, find: Callable[[str], PipelineStatus], missing: View, *, keeps_name: bool = False) -> View:
    @wraps(view)
    def following(request, name, **rest):
        try:
            pipeline = find(name)
        except UnknownNameError:
            return missing(request, name)
        version = tide([pipeline])
        if is_seen(request, version):
            return unchanged()
        return view(request, pipeline, version, **rest, **({"name": name} if keeps_name else {}))

    return require_safe(signed_in(following))
