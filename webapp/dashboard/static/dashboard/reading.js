/* What makes a page its reader's own: times that stand still are told in the reader's zone, and which one that is
   (without this script they are in UTC and say so); and addresses hold what was asked, without the fields left empty. */
(() => {
  "use strict";

  const DAY = { year: "numeric", month: "short", day: "numeric" };
  const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
  const day = new Intl.DateTimeFormat(undefined, DAY);
  const both = new Intl.DateTimeFormat(undefined, { ...DAY, ...TIME });
  const time = new Intl.DateTimeFormat(undefined, TIME);

  function zone() {
    const named = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" }).formatToParts(new Date());
    const short = named.find((part) => part.type === "timeZoneName").value;
    const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
    return timeZone === short ? short : `${timeZone} (${short})`;
  }

  function tell(element) {
    const moment = new Date(element.dateTime);
    const text = day.format(moment) === day.format(new Date()) ? time.format(moment) : both.format(moment);
    if (element.textContent !== text) element.textContent = text;
    element.title = moment.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
  }

  const tellAll = () => document.querySelectorAll("time[data-form=at]").forEach(tell);

  document.addEventListener("htmx:configRequest", ({ detail }) => {
    if (detail.elt.nodeName !== "FORM") return;
    for (const [name, value] of [...detail.formData.entries()]) if (value === "") detail.formData.delete(name);
  });

  document.addEventListener("DOMContentLoaded", () => {
    const shown = document.getElementById("zone");
    if (shown) shown.textContent = zone();
    tellAll();
    const live = document.getElementById("live");
    // New content brings times of its own; what is told already stays as it is, so this settles at once.
    if (live) new MutationObserver(tellAll).observe(live, { childList: true, subtree: true, attributeFilter: ["datetime"] });
  });
})();
