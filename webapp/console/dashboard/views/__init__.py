"""Views of the dashboard. They parse requests and render pages; queries and services read and write tables."""
