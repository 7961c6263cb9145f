"""Addresses of static files: with a digest once they are collected, so that browsers keep them; plain until then."""

from whitenoise.storage import CompressedManifestStaticFilesStorage  # type: ignore[import-untyped]


class CollectedOrNotStorage(CompressedManifestStaticFilesStorage):
    def stored_name(self, name):
        return super().stored_name(name) if self.hashed_files else name
