from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "webapp.audit"
    verbose_name = "Audit"
