from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "tidegauge.webapp.accounts.audit"
    verbose_name = "Audit"
