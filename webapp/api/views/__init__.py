"""The calls of the API: each view parses a request, asks a query or a service, and answers.

The docstring of a method is the text of its call in /api/schema, see webapp/api/calls.py.
"""
