"""API keys: which there are, what each may do, and when it was last used. They are made and rotated in the admin."""

from django.contrib.auth.decorators import permission_required
from django.views.decorators.http import require_safe

from webapp.api_keys import selectors
from webapp.dashboard.live import signed_in
from webapp.dashboard.views.still import still_page

SEE_KEYS = "api_keys.view_apikey"


@require_safe
@signed_in
@permission_required(SEE_KEYS, raise_exception=True)
def api_keys(request):
    return still_page(request, "dashboard/keys.html", {"keys": selectors.api_keys()})
