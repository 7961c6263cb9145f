"""How the pages of dashboard and admin write numbers, sizes and durations."""

from datetime import timedelta


def number(figure: float | None) -> str:
    """12345 -> 12,345; 12.3456 -> 12.35; 1234567.8 -> 1,234,568."""
    if figure is None:
        return "—"
    if isinstance(figure, int) or abs(figure) >= 10_000 or float(figure).is_integer():
        return f"{figure:,.0f}"
    return f"{figure:,.2f}"


def rate(figure: float) -> str:
    return number(figure if 0 < figure < 10 else round(figure))


def share(figure: float | None) -> str:
    """0.262 -> 26 %; a share above zero is never shown as zero."""
    if figure is None:
        return "—"
    return "<1 %" if 0 < figure < 0.01 else f"{figure * 100:.0f} %"


def percent(figure: float) -> str:
    """0.262 -> 26.2 %, 0.005 -> 0.5 %; for sentences that compare two shares."""
    return f"{figure * 100:.3g} %"


def size(byte_count: int) -> str:
    figure = float(byte_count)
    for unit in ("B", "kB", "MB", "GB"):
        if figure < 1000:
            return f"{figure:.0f} {unit}" if figure >= 10 or unit == "B" else f"{figure:.1f} {unit}"
        figure /= 1000
    return f"{figure:,.1f} TB"


def duration(length: timedelta | float | None) -> str:
    """In the largest fitting unit: 420 ms, 6.03 s, 12 s, 3 min, 5 h, 400 days."""
    if length is None:
        return "—"
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if 0 < seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10 and seconds % 1:
        return f"{seconds:.2f} s"
    for unit, unit_seconds, until in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < until:
            return f"{seconds // unit_seconds:.0f} {unit}"
    return f"{seconds // 86_400:,.0f} days"
