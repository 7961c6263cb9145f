"""What API keys have used, by hour and state."""

from django.contrib import admin
from unfold.decorators import display

from tidegauge.webapp.accounts.models import UsageHour
from tidegauge.webapp.core.admin import LongListAdmin
from tidegauge.webapp.core.writing import size


@admin.register(UsageHour)
class UsageAdmin(LongListAdmin):
    list_display = ["hour", "key", "of_state", "shown_requests", "shown_keys", "shown_bytes", "refusals"]
    list_filter = ["hour", "state", "prefix"]
    search_fields = ["=prefix", "state"]
    ordering = ["-hour", "prefix", "state"]
    date_hierarchy = "hour"

    @display(description="API key", ordering="prefix")
    def key(self, row):
        return f"tmk_{row.prefix}_.."

    @display(description="State", ordering="state")
    def of_state(self, row):
        return row.state or "—"

    @display(description="Requests", ordering="requests")
    def shown_requests(self, row):
        return f"{row.requests:,}"

    @display(description="Keys looked up", ordering="keys")
    def shown_keys(self, row):
        return f"{row.keys:,}"

    @display(description="Bytes sent", ordering="bytes")
    def shown_bytes(self, row):
        return size(row.bytes)
