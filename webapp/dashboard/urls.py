from django.urls import path

from webapp.dashboard import views

app_name = "dashboard"

urlpatterns = [
    path("", views.overview, name="index"),
    path("pipelines/<str:name>/", views.pipeline, name="pipeline"),
    path("pipelines/<str:name>/pause", views.pause, name="pause"),
    path("pipelines/<str:name>/resume", views.resume, name="resume"),
    path("states/<str:name>/", views.state, name="state"),
]
