"""Names of static files."""

from whitenoise.storage import CompressedManifestStaticFilesStorage  # type: ignore[import-untyped]


class CollectedOrNotStorage(CompressedManifestStaticFilesStorage):
    """Names static files with a digest, so that browsers cache them, or without one before `collectstatic` has run."""

    def stored_name(self, name):
        return super().stored_name(name) if self.hashed_files else name
