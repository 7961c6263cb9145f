"""The checks of `tidegauge doctor`, one module for each part of an installation.

A check is a function that yields findings. Most only collect what drivers, /readyz and `roles --check` check as well.
"""
