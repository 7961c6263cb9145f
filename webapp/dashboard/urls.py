from django.urls import path

from webapp.dashboard import views

app_name = "dashboard"

urlpatterns = [
    path("", views.overview, name="index"),
    path("pipelines/<str:name>/", views.pipeline, name="pipeline"),
    path("states/<str:name>/", views.state, name="state"),
]
