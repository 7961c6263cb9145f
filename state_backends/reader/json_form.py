"""A finished value as PostgreSQL writes it in JSON, for answers that are put together here."""

import json
import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID


def json_form(value: Any) -> str:
    """Return JSON text: times with their offset, numbers without a needless fraction, a NaN as text, bytes in hex."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(name)}: {json_form(part)}' for name, part in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(json_form, value))}]"
    if isinstance(value, float | Decimal):
        return _number(value)
    if isinstance(value, datetime):
        return json.dumps(_timestamp(value))
    if isinstance(value, date | UUID):
        return json.dumps(str(value))
    return json.dumps(f"\\x{value.hex()}" if isinstance(value, bytes) else value)


def _number(value: float | Decimal) -> str:
    if not math.isfinite(value):
        return json.dumps("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
    return format(value, "f") if isinstance(value, Decimal) else repr(value).removesuffix(".0")


def _timestamp(value: datetime) -> str:
    offset = value.isoformat()[-len("+00:00") :]
    whole, _, fraction = value.replace(tzinfo=None).isoformat(timespec="microseconds").partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}{offset}" if fraction else f"{whole}{offset}"
