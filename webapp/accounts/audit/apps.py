from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "webapp.accounts.audit"
    verbose_name = "Audit"
