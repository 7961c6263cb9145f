"""Alerts: what is open, what is silenced, which rules there are, and what is over."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required, permission_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.accounts.permissions import SILENCE, key_scope
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.visible import of_request
from tidegauge.webapp.console.dashboard import strip
from tidegauge.webapp.console.dashboard.alert_list import open_alerts, past_alerts, rules, rules_version
from tidegauge.webapp.console.dashboard.pasted import whole_number
from tidegauge.webapp.console.dashboard.rule_forms import OwnSilenceForm, RuleForm
from tidegauge.webapp.console.dashboard.views.live import (
    is_current,
    no_change,
    page,
    pipelines_version,
    sentence,
    signed_in,
    static_page,
)
from tidegauge.webapp.notify.alerts.acknowledged import acts_version, end_silence
from tidegauge.webapp.notify.alerts.messages import send_test, silences
from tidegauge.webapp.notify.alerts.models import AlertRule, Silence
from tidegauge.webapp.notify.alerts.past_week import WEEK, alerts_of, left_out, periods_by_pipeline
from tidegauge.webapp.notify.alerts.rule_templates import TEMPLATES

VIEW_RULES, ADD_RULES, CHANGE_RULES = (f"tidegauge_alerts.{act}_alertrule" for act in ("view", "add", "change"))
CHANGE_SILENCES = "tidegauge_alerts.change_silence"


@require_safe
@signed_in
def alerts(request: HttpRequest) -> HttpResponse:
    visible = of_request(request)
    pipelines, is_whole = visible.pipelines(), visible.scope.is_unrestricted
    strip.keep(request, pipelines)
    opened = open_alerts(visible, pipelines)
    before = whole_number(request.GET.get("before", ""))
    past, older = past_alerts(visible, before)
    sees_rules = is_whole and request.user.has_perm(VIEW_RULES)
    shown = [(each.alert.pk, each.alert.verdict, each.alert.reason) for each in opened]
    told = rules_version() if sees_rules else ""
    version = pipelines_version(pipelines, others=(shown, [each.pk for each in past], acts_version(), told))
    if is_current(request, version):
        return no_change()
    context = {
        "opened": opened,
        "past": past,
        "older": older,
        "is_first": not before,
        "silences": silences(timezone.now()) if is_whole else [],
        "silence_form": OwnSilenceForm(),
        "rules": rules(pipelines) if sees_rules else [],
        "sees_rules": sees_rules,
        "templates": TEMPLATES,
        "may_silence": is_whole and request.user.has_perm(SILENCE),
        "may_end": is_whole and request.user.has_perm(CHANGE_SILENCES),
        "may_add": is_whole and request.user.has_perm(ADD_RULES),
        "may_test": is_whole and request.user.has_perm(CHANGE_RULES),
        "is_restricted": not is_whole,
    }
    return page(request, "dashboard/alert_list.html", version, context, {"before": str(before)} if before else {})


@require_POST
@login_required
@permission_required(SILENCE, raise_exception=True)
def add_silence(request: HttpRequest) -> HttpResponse:
    key_scope(request).check_unrestricted()
    form = OwnSilenceForm(request.POST)
    if not form.is_valid():
        faults = [f"{name}: {error}" for name, errors in form.errors.items() for error in errors]
        messages.error(request, f"Nothing was silenced: {sentence('; '.join(faults))}")
        return redirect("dashboard:alerts")
    form.instance.created_by = request.user
    with transaction.atomic():
        made = form.save()
        record("alert.silence", made.about, by=request.user.get_username(), until=made.until.isoformat())
    messages.success(request, f"No messages about {made.pipeline or 'any pipeline'} until then.")
    return redirect("dashboard:alerts")


@require_POST
@login_required
@permission_required(CHANGE_SILENCES, raise_exception=True)
def end(request: HttpRequest, silence_id: int) -> HttpResponse:
    key_scope(request).check_unrestricted()
    end_silence(get_object_or_404(Silence, pk=silence_id), request.user)  # type: ignore[arg-type]
    messages.success(request, "The silence has ended.")
    return redirect("dashboard:alerts")


@require_POST
@login_required
@permission_required(CHANGE_RULES, raise_exception=True)
def test(request: HttpRequest, rule_id: int) -> HttpResponse:
    key_scope(request).check_unrestricted()
    rule = get_object_or_404(AlertRule, pk=rule_id)
    send_test(rule, request.user.get_username())
    messages.success(
        request, f"A test message of {rule} will be sent within 15 seconds; its row shows what became of it."
    )
    return redirect("dashboard:alerts")


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
@permission_required([VIEW_RULES, ADD_RULES], raise_exception=True)
def add_rule(request: HttpRequest) -> HttpResponse:
    """Show the form, filled in by a template; say how often its rule would have fired; create it."""
    key_scope(request).check_unrestricted()
    template = TEMPLATES.get(request.GET.get("template", ""), TEMPLATES["usual"])
    if request.method != "POST":
        initial = {"name": template.title} | dict(template.fields)
        form = RuleForm(initial=initial)
        return _form(request, form, AlertRule(**template.fields))
    form = RuleForm(request.POST)
    # Valid fields are set on the instance, also if others are refused, so that a rule can be tried without receivers.
    is_valid = form.is_valid()
    if "try" in request.POST or not is_valid:
        return _form(request, form, form.instance, 400 if not is_valid and "try" not in request.POST else 200)
    rule = form.save()
    record("admin.add", f"alert rule {rule}", by=request.user.get_username())
    messages.success(request, f"{rule} watches from now on.")
    return redirect("dashboard:alerts")


def _form(request: HttpRequest, form: RuleForm, rule: AlertRule, status: int = 200) -> HttpResponse:
    recorded = periods_by_pipeline(timezone.now() - WEEK)
    context = {
        "form": form,
        "shows_faults": status == 400,
        "fired": alerts_of(rule, queries.pipelines(), recorded) if recorded else None,
        "is_partial": left_out(rule),
        "templates": TEMPLATES,
    }
    return static_page(request, "dashboard/rule_form.html", context, status)
