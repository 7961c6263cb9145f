/* Shows times to the reader: relative ones ("3 s ago") keep counting, absolute ones are in the reader's time zone.
   Without this script all times are in UTC and marked as such. */
(() => {
  "use strict";

  const UNITS = [[120, 1, "s"], [7200, 60, "min"], [172800, 3600, "h"], [Infinity, 86400, "days"]];
  const DAY = { year: "numeric", month: "short", day: "numeric" };
  const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
  const day = new Intl.DateTimeFormat(undefined, DAY);
  const time = new Intl.DateTimeFormat(undefined, TIME);
  const dayAndTime = new Intl.DateTimeFormat(undefined, { ...DAY, ...TIME });

  let serverAheadMs = 0; // relative times count from the server's clock

  function setClock() {
    const live = document.getElementById("live");
    if (live) serverAheadMs = Date.parse(live.dataset.now) - Date.now();
  }

  function duration(seconds) {
    const [, size, unit] = UNITS.find(([until]) => seconds < until);
    return `${Math.floor(seconds / size).toLocaleString()} ${unit}`;
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

  function show(element) {
    const moment = new Date(element.dateTime);
    const format = FORMATS[element.dataset.form];
    const text = format ? format(moment, element.dataset.suffix) : element.textContent;
    if (element.textContent !== text) element.textContent = text;
    element.title = moment.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
  }

  const showAll = () => document.querySelectorAll("time[data-form]").forEach(show);

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
    setInterval(showAll, 1000);
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
