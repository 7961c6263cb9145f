"""The schedule of django-celery-beat, in the admin's own clothes."""

from django.contrib import admin
from django_celery_beat.admin import ClockedScheduleAdmin as BareClockedScheduleAdmin
from django_celery_beat.admin import CrontabScheduleAdmin as BareCrontabScheduleAdmin
from django_celery_beat.admin import PeriodicTaskAdmin as BarePeriodicTaskAdmin
from django_celery_beat.admin import PeriodicTaskForm as BarePeriodicTaskForm
from django_celery_beat.admin import TaskSelectWidget as BareTaskSelectWidget
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

for model in (PeriodicTask, IntervalSchedule, CrontabSchedule, SolarSchedule, ClockedSchedule):
    admin.site.unregister(model)


class TaskSelectWidget(UnfoldAdminSelectWidget, BareTaskSelectWidget):
    pass


class PeriodicTaskForm(BarePeriodicTaskForm):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["task"].widget = UnfoldAdminTextInputWidget()
        self.fields["regtask"].widget = TaskSelectWidget()


@admin.register(PeriodicTask)
class PeriodicTaskAdmin(BarePeriodicTaskAdmin, ModelAdmin):
    form = PeriodicTaskForm


@admin.register(CrontabSchedule)
class CrontabScheduleAdmin(BareCrontabScheduleAdmin, ModelAdmin):
    pass


@admin.register(ClockedSchedule)
class ClockedScheduleAdmin(BareClockedScheduleAdmin, ModelAdmin):
    pass


@admin.register(IntervalSchedule, SolarSchedule)
class ScheduleAdmin(ModelAdmin):
    pass
