/* Shows times to the reader: relative ones ("3 s ago") keep counting, absolute ones are in the reader's time zone.
   Without this script all times are in UTC and marked as such. */
(() => {
  "use strict";

  // Until how many seconds, the step of the text in seconds, its unit, and the seconds of that. From ten seconds on the
  // steps are longer, because each change of a text paints the page, which takes five milliseconds.
  const UNITS = [[10, 1, "s", 1], [60, 5, "s", 1], [120, 10, "s", 1], [7200, 60, "min", 60], [172800, 3600, "h", 3600], [Infinity, 86400, "days", 86400]];
  const DAY = { year: "numeric", month: "short", day: "numeric" };
  const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
  const day = new Intl.DateTimeFormat(undefined, DAY);
  const time = new Intl.DateTimeFormat(undefined, TIME);
  const dayAndTime = new Intl.DateTimeFormat(undefined, { ...DAY, ...TIME });

  const HOUR_MS = 3600000;
  // Until how many seconds a text may change when. Texts change together, because each time that any of them changes, the
  // page is painted: a Health page with 52 pipelines of which each has minutes in its row would be every five seconds.
  const TICKS_MS = [[10, 1], [120, 5000], [600, 30000], [Infinity, 60000]];
  const written = new WeakMap(); // element to what is written in it, and until when that is right

  let serverAheadMs = 0; // relative times count from the server's clock

  function setClock() {
    const live = document.getElementById("live");
    if (live) serverAheadMs = Date.parse(live.dataset.now) - Date.now();
  }

  function duration(seconds) {
    const [, step, unit, size] = UNITS.find(([until]) => seconds < until);
    return `${((Math.floor(seconds / step) * step) / size).toLocaleString()} ${unit}`;
  }

  function ago(moment, suffix) {
    const seconds = Math.max(0, (Date.now() + serverAheadMs - moment) / 1000);
    return suffix && seconds < 1 ? "just now" : `${duration(seconds)}${suffix}`;
  }

  function until(moment) {
    const seconds = Math.floor((moment - Date.now() - serverAheadMs) / 1000);
    return seconds < 1 ? "now" : `in ${duration(seconds)}`;
  }

  const at = (moment) => (day.format(moment) === day.format(new Date()) ? time : dayAndTime).format(moment);

  const FORMATS = { ago, until, at };

  const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

  /* Until when a text stays. A day is not longer than that of the date, and clocks that are set go unnoticed for it. */
  function lasts(moment, form, now) {
    if (form !== "ago" && form !== "until") return now + HOUR_MS;
    const passed = Date.now() + serverAheadMs - moment;
    const of = (sizes) => sizes.find(([until]) => Math.abs(passed) / 1000 < until)[1];
    const step = 1000 * of(UNITS), tick = of(TICKS_MS);
    const right = now + Math.min(HOUR_MS, step - (((passed % step) + step) % step) + 1);
    return Math.ceil(right / tick) * tick;
  }

  /* Writes a time if its text is no longer right: an open page with hundreds of times must cost next to nothing. */
  function show(element) {
    const now = performance.now();
    const known = written.get(element);
    if (known && known.dateTime === element.dateTime && known.clock === serverAheadMs && now < known.until) return known.until;
    const moment = new Date(element.dateTime);
    const { form, suffix } = element.dataset;
    const text = FORMATS[form] ? FORMATS[form](moment, suffix) : element.textContent;
    if (element.textContent !== text) element.textContent = text;
    if (!known || known.dateTime !== element.dateTime) element.title = whole.format(moment);
    const until = lasts(moment, form, now);
    written.set(element, { dateTime: element.dateTime, clock: serverAheadMs, until });
    return until;
  }

  let timer = 0;

  function showAll() {
    const until = Math.min(...[...document.querySelectorAll("time[data-form]")].map(show));
    clearTimeout(timer);
    // A hidden page is written again when it is looked at.
    if (until < Infinity && !document.hidden) timer = setTimeout(showAll, Math.max(250, until - performance.now()));
  }

  function zone() {
    const parts = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" }).formatToParts(new Date());
    const short = parts.find((part) => part.type === "timeZoneName").value;
    const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
    return timeZone === short ? short : `${timeZone} (${short})`;
  }

  document.addEventListener("DOMContentLoaded", () => {
    const shownZone = document.getElementById("zone");
    if (shownZone) shownZone.textContent = zone();
    setClock();
    showAll();
    document.addEventListener("visibilitychange", showAll);
    const live = document.getElementById("live");
    if (!live) return;
    // This does not trigger itself endlessly, because `show` does not touch a text that is already right.
    const observer = new MutationObserver((changes) => {
      if (changes.some((change) => change.attributeName === "data-now")) setClock();
      showAll();
    });
    observer.observe(live, { childList: true, subtree: true, attributeFilter: ["datetime", "data-now"] });
  });
})();
