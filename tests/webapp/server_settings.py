"""The settings of a server under test: those of the product, whose constants the environment may set as well."""

import os

from tidegauge.webapp.settings import *

for _name, _constant in list(globals().items()):
    if _name in os.environ and type(_constant) in (int, float):
        globals()[_name] = type(_constant)(os.environ[_name])
